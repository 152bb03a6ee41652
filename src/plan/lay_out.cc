#include "plan/lay_out.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/recently_made.h"
#include "plan/native_program.h"
#include "plan/pipeline.h"

namespace distsetup {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// A model's sizes as one rank of tensor parallelism has them, and whole.
struct ProgramSizes {
  Symbols local, full;
  int tp = 1;
  int64_t experts_per_rank = 0;  // 0: every rank has all
};

Parameter make_parameter(const ParameterDecl& decl, const ProgramSizes& sizes) {
  Parameter p;
  p.name = decl.name;
  p.numel = 1;
  for (const std::string& e : decl.shape) {
    p.shape.push_back(evaluate(e, sizes.local));
    p.full_shape.push_back(evaluate(e, sizes.full));
    p.numel *= p.shape.back();
  }
  p.decay = decl.decay;
  p.trains = decl.trains;
  p.balances = decl.balances;
  if (sizes.experts_per_rank > 0 && decl.expert >= 0) p.expert_place = static_cast<int>(decl.expert / sizes.experts_per_rank);
  p.init = decl.init;
  p.order = decl.order;
  p.transposed = decl.transposed;
  p.published_rows = decl.published_rows.empty() ? 0 : evaluate(decl.published_rows, sizes.full);
  p.stacked_at = decl.stacked ? decl.expert : -1;
  if (sizes.tp == 1 || decl.split < 0) return p;
  p.split_dim = decl.split;
  p.split_ranks = sizes.tp;
  for (const std::string& e : decl.parts) p.parts.push_back(evaluate(e, sizes.full));
  if (p.parts.empty()) p.parts.push_back(p.full_shape[static_cast<size_t>(decl.split)]);
  return p;
}

void add_to_slot(UnitLayout& unit, const Parameter& p, const std::string& slot) {
  if (unit.slots.empty() || unit.slots.back().name != slot) {
    unit.slots.push_back({slot, unit.numel, p.shape});
  } else {
    unit.slots.back().shape[0] += p.shape[0];
  }
  unit.numel += p.numel;
}

void add_record_to_slot(UnitLayout& unit, const Parameter& p, const std::string& slot) {
  unit.slots.push_back({slot, unit.numel, p.shape});
  unit.numel += record_of(p).num_bytes;
}

void add_parameter(UnitLayout& unit, Parameter p, const std::string& slot) {
  p.offset = unit.numel;
  add_to_slot(unit, p, slot);
  unit.parameters.push_back(std::move(p));
}

// Of the experts of a slot those of the first rank come first: every other rank's begin where these do.
void add_experts(const std::vector<Parameter>& experts, const std::vector<ParameterDecl>& decls, const std::string& prefix,
                 UnitLayout& unit) {
  std::map<std::string, std::vector<int64_t>> offsets;  // by slot
  std::map<std::pair<std::string, int>, size_t> num_placed;
  for (size_t i = 0; i < experts.size(); ++i) {
    Parameter p = experts[i];
    const std::string& slot = decls[i].slot;
    p.name = prefix + p.name;
    if (p.expert_place == 0) {
      offsets[slot].push_back(unit.numel);
      add_parameter(unit, std::move(p), slot);
      continue;
    }
    p.offset = offsets.at(slot).at(num_placed[{slot, p.expert_place}]++);
    unit.parameters.push_back(std::move(p));
  }
}

// Without names: of experts those of the first rank.
void add_sizes(const std::vector<Parameter>& parameters, const std::vector<ParameterDecl>& decls, UnitLayout& unit) {
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].expert_place <= 0) add_to_slot(unit, parameters[i], decls[i].slot);
}

// Parameters as Layout counts them.
struct ParameterCounts {
  int64_t numel = 0, trained = 0, trained_experts = 0, frozen_experts = 0, quantized = 0, stored = 0, hidden = 0, factored = 0;
};

// Of a program, without the prefixes of units that run it: made once.
struct ProgramParameters {
  std::vector<Parameter> own, shared, experts, frozen, frozen_experts, quantized;
  ParameterCounts counts;
  UnitLayout own_sizes, expert_sizes, frozen_sizes, frozen_expert_sizes, quantized_sizes;  // slots alone
  ProgramParameters(const Program& program, const ProgramSizes& sizes) {
    for (const ParameterDecl& decl : program.parameters) own.push_back(make_parameter(decl, sizes));
    for (const ParameterDecl& decl : program.shared_parameters) shared.push_back(make_parameter(decl, sizes));
    for (const ParameterDecl& decl : program.expert_parameters) experts.push_back(make_parameter(decl, sizes));
    for (const ParameterDecl& decl : program.frozen_parameters) frozen.push_back(make_parameter(decl, sizes));
    for (const ParameterDecl& decl : program.frozen_expert_parameters) frozen_experts.push_back(make_parameter(decl, sizes));
    for (const ParameterDecl& decl : program.quantized_parameters) quantized.push_back(make_parameter(decl, sizes));
    for (const std::vector<Parameter>* list : {&own, &shared, &experts, &frozen, &frozen_experts, &quantized})
      for (const Parameter& p : *list) count(program.kind, p, list);
    add_sizes(own, program.parameters, own_sizes);
    add_sizes(experts, program.expert_parameters, expert_sizes);
    add_sizes(frozen, program.frozen_parameters, frozen_sizes);
    add_sizes(frozen_experts, program.frozen_expert_parameters, frozen_expert_sizes);
    for (size_t i = 0; i < quantized.size(); ++i)
      add_record_to_slot(quantized_sizes, quantized[i], program.quantized_parameters[i].slot);
  }

 private:
  void count(UnitKind kind, const Parameter& p, const std::vector<Parameter>* list) {
    const int64_t full = full_numel(p), trains = p.trains ? full : 0;
    counts.numel += full;
    counts.trained += trains;
    counts.trained_experts += list == &experts ? trains : 0;
    counts.frozen_experts += list == &frozen_experts ? full : 0;
    counts.quantized += list == &quantized ? full : 0;
    if (list == &frozen || list == &frozen_experts || list == &quantized) return;
    counts.stored += full;
    counts.hidden += is_hidden_matrix(kind, p) ? full : 0;
    counts.factored += p.trains ? num_factors(p) : 0;
  }
};

void add(const ParameterCounts& counts, Layout& layout) {
  layout.numel += counts.numel;
  layout.trained_numel += counts.trained;
  layout.trained_expert_numel += counts.trained_experts;
  layout.frozen_expert_numel += counts.frozen_experts;
  layout.quantized_numel += counts.quantized;
  layout.stored_numel += counts.stored;
  layout.hidden_numel += counts.hidden;
  layout.factored_numel += counts.factored;
}

// Of all programs of a model: the same for every mesh with so many tensor-parallel ranks and ranks that share experts.
struct ModelParameters {
  std::shared_ptr<const NativePrograms> programs;
  int64_t experts_per_rank = 0;
  ProgramParameters embedding, head;
  std::vector<ProgramParameters> blocks;
  ModelParameters(const std::shared_ptr<const NativePrograms>& of, const ProgramSizes& sizes)
      : programs(of), experts_per_rank(sizes.experts_per_rank), embedding(of->embedding, sizes), head(of->head, sizes) {
    for (const Program& block : of->blocks) blocks.emplace_back(block, sizes);
  }
};

// What lies beside a unit that has a program; most are empty.
struct UnitsBeside {
  UnitLayout experts, frozen, frozen_experts, quantized, reference;
  UnitsBeside() {
    experts.kind = UnitKind::kExperts;
    for (UnitLayout* one : {&frozen, &frozen_experts, &quantized, &reference}) one->kind = UnitKind::kFrozen, one->is_frozen = true;
    experts.is_expert = frozen_experts.is_expert = quantized.is_quantized = reference.is_reference = true;
  }
};
// The units of a layout while it is made.
struct LayoutUnits {
  Layout& layout;
  std::vector<UnitLayout> shared;   // of each part of the model that the stage has
  std::vector<UnitsBeside> beside;  // of each unit that has a program, in their order
  bool keeps_reference = false;
  bool sizes_alone = false;  // no names
};

void add_record(UnitLayout& unit, Parameter p, const std::string& slot) {
  p.offset = unit.numel;
  add_record_to_slot(unit, p, slot);
  unit.parameters.push_back(std::move(p));
}

// add_program() without the names of parameters.
void add_sizes_alone(const Program& program, const ProgramParameters& parameters, int chunk, UnitLayout& unit, UnitsBeside& beside,
                     LayoutUnits& to) {
  const int u = static_cast<int>(to.layout.units.size()) - 1;
  for (const auto& [sizes, into] : {std::pair{&parameters.own_sizes, &unit},
                                    {&parameters.expert_sizes, &beside.experts},
                                    {&parameters.frozen_sizes, &beside.frozen},
                                    {&parameters.frozen_expert_sizes, &beside.frozen_experts},
                                    {&parameters.quantized_sizes, &beside.quantized}})
    into->slots = sizes->slots, into->numel = sizes->numel;
  for (size_t i = 0; i < parameters.shared.size(); ++i)
    add_to_slot(to.shared[static_cast<size_t>(chunk)], parameters.shared[i], shared_slot(u, program.shared_parameters[i].slot));
  if (!to.keeps_reference) return;
  for (size_t i = 0; i < parameters.own.size(); ++i) add_to_slot(beside.reference, parameters.own[i], program.parameters[i].slot);
  for (size_t i = 0; i < parameters.shared.size(); ++i)
    add_to_slot(beside.reference, parameters.shared[i], program.shared_parameters[i].slot);
}

// Of a unit in the stage's part `chunk` of the model. -1: it is not on the stage, its parameters are counted alone.
void add_program(const Program& program, int64_t layer, const ProgramParameters& parameters, int chunk, LayoutUnits& to) {
  Layout& layout = to.layout;
  const int u = static_cast<int>(layout.units.size());
  UnitLayout& unit = layout.units.emplace_back();
  UnitsBeside& beside = to.beside.emplace_back();
  unit.kind = program.kind;
  add(parameters.counts, layout);
  if (chunk < 0) return;
  if (to.sizes_alone) return add_sizes_alone(program, parameters, chunk, unit, beside, to);
  const std::string prefix = parameter_prefix(program, layer);
  const auto named = [&](Parameter p) {
    p.name = prefix + p.name;
    return p;
  };
  for (size_t i = 0; i < parameters.own.size(); ++i) add_parameter(unit, named(parameters.own[i]), program.parameters[i].slot);
  for (size_t i = 0; i < parameters.shared.size(); ++i)
    add_parameter(to.shared[static_cast<size_t>(chunk)], named(parameters.shared[i]),
                  shared_slot(u, program.shared_parameters[i].slot));
  add_experts(parameters.experts, program.expert_parameters, prefix, beside.experts);
  add_experts(parameters.frozen_experts, program.frozen_expert_parameters, prefix, beside.frozen_experts);
  for (size_t i = 0; i < parameters.frozen.size(); ++i)
    add_parameter(beside.frozen, named(parameters.frozen[i]), program.frozen_parameters[i].slot);
  for (size_t i = 0; i < parameters.quantized.size(); ++i)
    add_record(beside.quantized, named(parameters.quantized[i]), program.quantized_parameters[i].slot);
  for (size_t i = 0; to.keeps_reference && i < parameters.own.size(); ++i)
    add_parameter(beside.reference, named(parameters.own[i]), program.parameters[i].slot);
  for (size_t i = 0; to.keeps_reference && i < parameters.shared.size(); ++i)
    add_parameter(beside.reference, named(parameters.shared[i]), program.shared_parameters[i].slot);
}

// `numbers`: gets its number among the layout's units; -1: it is empty.
void add_unit(UnitLayout& unit, std::vector<int>& numbers, Layout& layout) {
  numbers.push_back(unit.numel > 0 ? static_cast<int>(layout.units.size()) : -1);
  if (unit.numel > 0) layout.units.push_back(std::move(unit));
}

// Shards, and where they lie one after the other.
void place_units(Layout& layout) {
  const bool splits_frozen = layout.sharding == Sharding::kZero3;
  for (UnitLayout& unit : layout.units) {
    const bool is_shared = unit.kind == UnitKind::kShared;
    unit.shard_group = is_shared                          ? shared_group(layout.mesh, layout.sharding)
                       : unit.is_frozen && !splits_frozen ? Group::kSelf
                       : unit.is_expert                   ? expert_group(layout.mesh, layout.sharding)
                                                          : layout.shard_group;
    unit.replica_group = unit.is_expert ? Group::kDpReplicate : layout.replica_group;
    unit.shard_ranks = group_size(layout.mesh, unit.shard_group);
    unit.shard_numel =
        round_up((unit.numel + unit.shard_ranks - 1) / unit.shard_ranks, unit.is_quantized ? kNf4Alignment : kShardAlignment);
    int64_t& numel = unit.is_quantized ? layout.quantized_bytes : unit.is_frozen ? layout.frozen_numel : layout.shard_numel;
    unit.shard_offset = numel;
    numel += unit.shard_numel;
    if (is_shared || unit.is_frozen) continue;
    unit.gathered_offset = layout.gathered_numel;
    layout.gathered_numel += unit.shard_numel * unit.shard_ranks;
  }
}

}  // namespace

Layout lay_out(const Geometry& geometry, const Mesh& mesh, Sharding sharding, int stage, int chunks_per_stage, const Tuning& tuning,
               bool keeps_reference, bool sizes_alone) {
  CHECK(mesh.dp_shard >= 1 && mesh.tp >= 1);
  const std::shared_ptr<const NativePrograms> programs = native_programs(geometry, {.tp = mesh.tp, .ep = mesh.ep}, tuning);
  const int64_t experts_per_rank = mesh.ep > 1 || mesh.tp > 1 ? geometry.num_experts / mesh.ep : 0;
  static RecentlyMade<ModelParameters> kept(64);
  const std::shared_ptr<const ModelParameters> parameters =
      kept.get([&](const ModelParameters& known) { return known.programs == programs && known.experts_per_rank == experts_per_rank; },
               [&] {
                 return ModelParameters(programs, {native_symbols(geometry, mesh.tp, 1, {.tp = mesh.tp}),
                                                   native_symbols(geometry, 1, 1), mesh.tp, experts_per_rank});
               });
  Layout layout;
  layout.geometry = geometry;
  layout.tuning = tuning;
  layout.mesh = mesh;
  layout.sharding = sharding;
  layout.shard_group = shard_group(mesh, sharding);
  layout.replica_group = replica_group(mesh, sharding);
  layout.state_group = state_group(mesh, sharding);
  layout.stage = stage;
  layout.chunks_per_stage = chunks_per_stage;
  const std::vector<UnitSpan> chunks = stage_chunks(geometry.num_layers, mesh.pp, chunks_per_stage, stage);
  const auto chunk_of = [&](int64_t unit) {
    for (int c = 0; c < static_cast<int>(chunks.size()); ++c)
      if (chunks[static_cast<size_t>(c)].contains(static_cast<int>(unit))) return c;
    return -1;
  };
  const int chunk_of_first = chunk_of(0), chunk_of_head = chunk_of(geometry.num_layers + 1);
  const bool has_copy = geometry.tied_embeddings && chunk_of_first < 0 && chunk_of_head >= 0;
  LayoutUnits units{layout, std::vector<UnitLayout>(chunks.size()), {}, keeps_reference, sizes_alone};
  for (UnitLayout& shared : units.shared) shared.kind = UnitKind::kShared;
  const auto num_programs = static_cast<size_t>(geometry.num_layers) + 2;
  layout.units.reserve(2 * num_programs);  // few models have more than one unit beside each
  units.beside.reserve(num_programs);
  add_program(programs->embedding, 0, parameters->embedding, has_copy ? chunk_of_head : chunk_of_first, units);
  layout.units.front().is_copy = units.beside.front().frozen.is_copy = has_copy;
  for (int64_t i = 0; i < geometry.num_layers; ++i)
    add_program(programs->block(i), i, parameters->blocks[static_cast<size_t>(programs->kind_of_layer[static_cast<size_t>(i)])],
                chunk_of(i + 1), units);
  add_program(programs->head, 0, parameters->head, chunk_of_head, units);
  layout.num_programs = static_cast<int>(layout.units.size());
  std::vector<int> shared_of_chunk;
  for (UnitLayout& shared : units.shared) add_unit(shared, shared_of_chunk, layout);
  for (int u = 0; u < layout.num_programs; ++u) {
    const int chunk = chunk_of(u);
    layout.shared_units.push_back(chunk < 0 ? -1 : shared_of_chunk[static_cast<size_t>(chunk)]);
  }
  for (const auto& [of, numbers] : {std::pair{&UnitsBeside::experts, &Layout::expert_units},
                                    {&UnitsBeside::frozen, &Layout::frozen_units},
                                    {&UnitsBeside::frozen_experts, &Layout::frozen_expert_units},
                                    {&UnitsBeside::quantized, &Layout::quantized_units},
                                    {&UnitsBeside::reference, &Layout::reference_units}})
    for (UnitsBeside& beside : units.beside) add_unit(beside.*of, layout.*numbers, layout);
  place_units(layout);
  return layout;
}

}  // namespace distsetup
