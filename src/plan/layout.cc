#include "plan/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "plan/native_program.h"
#include "plan/pipeline.h"
#include "plan/reference.h"

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

void add_parameter(UnitLayout& unit, Parameter p, const std::string& slot) {
  p.offset = unit.numel;
  if (unit.slots.empty() || unit.slots.back().name != slot) {
    unit.slots.push_back({slot, p.offset, p.shape});
  } else {
    unit.slots.back().shape[0] += p.shape[0];
  }
  unit.numel += p.numel;
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

// Of a program, without the prefixes of units that run it: made once.
struct ProgramParameters {
  std::vector<Parameter> own, shared, experts, frozen, frozen_experts, quantized;
  ProgramParameters(const Program& program, const ProgramSizes& sizes) {
    for (const ParameterDecl& decl : program.parameters) own.push_back(make_parameter(decl, sizes));
    for (const ParameterDecl& decl : program.shared_parameters) shared.push_back(make_parameter(decl, sizes));
    for (const ParameterDecl& decl : program.expert_parameters) experts.push_back(make_parameter(decl, sizes));
    for (const ParameterDecl& decl : program.frozen_parameters) frozen.push_back(make_parameter(decl, sizes));
    for (const ParameterDecl& decl : program.frozen_expert_parameters) frozen_experts.push_back(make_parameter(decl, sizes));
    for (const ParameterDecl& decl : program.quantized_parameters) quantized.push_back(make_parameter(decl, sizes));
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
};

void add_record(UnitLayout& unit, Parameter p, const std::string& slot) {
  p.offset = unit.numel;
  unit.slots.push_back({slot, p.offset, p.shape});
  unit.numel += record_of(p).num_bytes;
  unit.parameters.push_back(std::move(p));
}

// Of a unit in the stage's part `chunk` of the model. -1: it is not on the stage, its parameters are counted alone.
void add_program(const Program& program, int64_t layer, const ProgramParameters& parameters, int chunk, LayoutUnits& to) {
  Layout& layout = to.layout;
  const std::string prefix = parameter_prefix(program, layer);
  const int u = static_cast<int>(layout.units.size());
  const auto named = [&](Parameter p) {
    p.name = prefix + p.name;
    return p;
  };
  UnitLayout& unit = layout.units.emplace_back();
  UnitsBeside& beside = to.beside.emplace_back();
  unit.kind = program.kind;
  for (const std::vector<Parameter>* list : {&parameters.own, &parameters.shared, &parameters.experts, &parameters.frozen,
                                             &parameters.frozen_experts, &parameters.quantized}) {
    for (const Parameter& p : *list) {
      layout.numel += full_numel(p);
      layout.trained_numel += p.trains ? full_numel(p) : 0;
      layout.trained_expert_numel += list == &parameters.experts && p.trains ? full_numel(p) : 0;
      layout.frozen_expert_numel += list == &parameters.frozen_experts ? full_numel(p) : 0;
      layout.quantized_numel += list == &parameters.quantized ? full_numel(p) : 0;
      if (list == &parameters.frozen || list == &parameters.frozen_experts || list == &parameters.quantized) continue;
      layout.stored_numel += full_numel(p);
      layout.hidden_numel += is_hidden_matrix(program.kind, p) ? full_numel(p) : 0;
      layout.factored_numel += p.trains ? num_factors(p) : 0;
    }
  }
  if (chunk < 0) return;
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

// Sizes of a part along the split dimension on one rank.
int64_t piece_of(int64_t part, int ranks) { return (part + ranks - 1) / ranks; }

// Moves a box of a rank's piece to where it stands in the whole, cut where parts meet; without padding.
void place_box(const Parameter& p, int tp_index, const Box& local, std::vector<Box>& boxes) {
  if (p.split_dim < 0) return boxes.push_back(local);
  const size_t d = static_cast<size_t>(p.split_dim);
  const int64_t begin = local.start[d], end = begin + local.size[d], stride = local.numel() / local.size[d];
  CHECK(d == 0 || p.parts.size() == 1, "parameter {}", p.name);
  int64_t part_local = 0, part_full = 0;
  for (const int64_t part : p.parts) {
    const int64_t piece = piece_of(part, p.split_ranks), first = tp_index * piece;
    const int64_t valid = std::clamp<int64_t>(part - first, 0, piece);
    const int64_t from = std::max(begin, part_local), to = std::min(end, part_local + valid);
    if (from < to) {
      Box box = local;
      box.start[d] = part_full + first + from - part_local;
      box.size[d] = to - from;
      box.shard_offset += d == 0 ? (from - begin) * stride : 0;
      boxes.push_back(std::move(box));
    }
    part_local += piece;
    part_full += part;
  }
}

}  // namespace

std::string shared_slot(int unit, std::string_view slot) { return fmt::format("{}/{}", unit, slot); }

int shard_index(const Layout& layout, const UnitLayout& unit, const Coordinates& at) {
  return group_index(layout.mesh, unit.shard_group, at);
}

Group shard_group(const Mesh& mesh, Sharding sharding) {
  if (mesh.ep > 1 && sharding == Sharding::kDdp) return Group::kSelf;
  return mesh.cp > 1 && sharding != Sharding::kDdp ? Group::kDpShard | Group::kCp : Group::kDpShard;
}

Group replica_group(const Mesh& mesh, Sharding sharding) {
  if (mesh.ep > 1 && sharding == Sharding::kDdp) return token_group(mesh);
  return mesh.cp > 1 && sharding == Sharding::kDdp ? Group::kDpReplicate | Group::kCp : Group::kDpReplicate;
}

Group shared_group(const Mesh& mesh, Sharding sharding) {
  return mesh.tp > 1 ? shard_group(mesh, sharding) | Group::kTp : shard_group(mesh, sharding);
}

Group expert_group(const Mesh& mesh, Sharding sharding) { return mesh.ep > 1 ? Group::kExpertData : shared_group(mesh, sharding); }

Group state_group(const Mesh& mesh, Sharding sharding) {
  const bool splits_experts_alone = mesh.ep > 1 && sharding == Sharding::kDdp;
  const Group states = shared_group(mesh, splits_experts_alone ? Sharding::kZero1 : sharding);
  return mesh.pp > 1 ? states | Group::kPp : states;
}

Layout make_layout(const Plan& plan, int stage) {
  return make_layout(plan.model, plan.mesh, plan.strategy.sharding, stage, plan.strategy.virtual_stages, tuning_of(plan.train),
                     keeps_reference(plan.train));
}

Layout make_layout(const Geometry& geometry, const Mesh& mesh, Sharding sharding, int stage, int chunks_per_stage,
                   const Tuning& tuning, bool keeps_reference) {
  CHECK(mesh.dp_shard >= 1 && mesh.tp >= 1);
  const std::shared_ptr<const NativePrograms> programs = native_programs(geometry, {.tp = mesh.tp, .ep = mesh.ep}, tuning);
  const ProgramSizes sizes = {native_symbols(geometry, mesh.tp, 1, {.tp = mesh.tp}), native_symbols(geometry, 1, 1), mesh.tp,
                              mesh.ep > 1 || mesh.tp > 1 ? geometry.num_experts / mesh.ep : 0};
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
  LayoutUnits units{layout, std::vector<UnitLayout>(chunks.size()), {}, keeps_reference};
  for (UnitLayout& shared : units.shared) shared.kind = UnitKind::kShared;
  std::vector<ProgramParameters> blocks;
  for (const Program& block : programs->blocks) blocks.emplace_back(block, sizes);
  add_program(programs->embedding, 0, ProgramParameters(programs->embedding, sizes), has_copy ? chunk_of_head : chunk_of_first, units);
  layout.units.front().is_copy = units.beside.front().frozen.is_copy = has_copy;
  for (int64_t i = 0; i < geometry.num_layers; ++i)
    add_program(programs->block(i), i, blocks[static_cast<size_t>(programs->kind_of_layer[static_cast<size_t>(i)])], chunk_of(i + 1),
                units);
  add_program(programs->head, 0, ProgramParameters(programs->head, sizes), chunk_of_head, units);
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

int64_t full_numel(const Parameter& p) {
  int64_t n = 1;
  for (const int64_t size : p.full_shape) n *= size;
  return n;
}

Nf4Record record_of(const Parameter& p) { return nf4_record(p.numel, p.split_dim >= 0 ? p.split_ranks : 1); }

int64_t full_element(const Parameter& p, int tp_index, int64_t element) {
  if (p.split_dim < 0) return element;
  const int64_t width = p.shape.size() > 1 ? p.shape[1] : 1, full_width = p.full_shape.size() > 1 ? p.full_shape[1] : 1;
  int64_t row = element / width, column = element % width;
  int64_t& at = p.split_dim == 0 ? row : column;
  int64_t before = 0;
  for (const int64_t part : p.parts) {
    const int64_t piece = piece_of(part, p.split_ranks);
    if (at < piece) {
      const int64_t inside = tp_index * piece + at;
      if (inside >= part) return -1;
      at = before + inside;
      return row * full_width + column;
    }
    at -= piece;
    before += part;
  }
  return -1;
}

ElementRange owned_range(const UnitLayout& unit, int index) {
  const int64_t begin = std::min(unit.numel, index * unit.shard_numel);
  return {begin, std::min(unit.numel, begin + unit.shard_numel)};
}

ElementRange owned_part(const Layout& layout, const UnitLayout& unit, const Parameter& p, const Coordinates& at) {
  if (p.expert_place >= 0 && p.expert_place != group_index(layout.mesh, Group::kEp, at)) return {};
  const ElementRange own = owned_range(unit, shard_index(layout, unit, at));
  const int64_t begin = std::max(own.begin, p.offset), end = std::min(own.end, p.offset + p.numel);
  return begin < end ? ElementRange{begin, end} : ElementRange{};
}

bool is_copy_of_another(const Layout& layout, const UnitLayout& unit, const Coordinates& at) {
  const bool shares_experts_alone = layout.mesh.ep > 1 && layout.sharding == Sharding::kDdp;
  return unit.is_copy || (shares_experts_alone && !unit.is_expert && (at.dp_shard > 0 || at.cp > 0));
}

int64_t num_factors(const Parameter& p) { return p.full_shape.size() == 2 ? p.full_shape[0] + p.full_shape[1] : full_numel(p); }

int64_t Box::numel() const {
  int64_t n = 1;
  for (const int64_t s : size) n *= s;
  return n;
}

OwnedBytes owned_bytes(const Layout& layout, const UnitLayout& unit, const Parameter& p, const Coordinates& at) {
  CHECK(unit.is_quantized, "parameter {}", p.name);
  const ElementRange own = owned_range(unit, shard_index(layout, unit, at));
  const int64_t begin = std::max(own.begin, p.offset), end = std::min(own.end, p.offset + record_of(p).num_bytes);
  if (begin >= end) return {};
  return {{begin - p.offset, end - p.offset}, unit.shard_offset + begin - own.begin};
}

std::vector<Box> boxes_of(const Layout& layout, const UnitLayout& unit, const Parameter& p, const Coordinates& at) {
  CHECK(!unit.is_quantized, "parameter {}", p.name);
  const ElementRange own = owned_range(unit, shard_index(layout, unit, at));
  const auto [begin, end] = owned_part(layout, unit, p, at);
  std::vector<Box> boxes;
  if (begin >= end) return boxes;
  const auto add = [&](int64_t from, int64_t to, std::vector<int64_t> start, std::vector<int64_t> size) {
    if (from < to) place_box(p, at.tp, {std::move(start), std::move(size), unit.shard_offset + (p.offset + from - own.begin)}, boxes);
  };
  const int64_t from = begin - p.offset, to = end - p.offset;
  if (p.shape.size() == 1) {
    add(from, to, {from}, {to - from});
    return boxes;
  }
  CHECK(p.shape.size() == 2, "parameter {}", p.name);
  const int64_t width = p.shape[1];
  const int64_t first_row = (from + width - 1) / width, last_row = to / width;  // whole rows [first_row, last_row)
  if (first_row > last_row) {                                                   // inside one row
    add(from, to, {from / width, from % width}, {1, to - from});
    return boxes;
  }
  add(from, first_row * width, {from / width, from % width}, {1, first_row * width - from});
  add(first_row * width, last_row * width, {first_row, 0}, {last_row - first_row, width});
  add(last_row * width, to, {last_row, 0}, {1, to - last_row * width});
  return boxes;
}

}  // namespace distsetup
