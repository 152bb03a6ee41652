#include "plan/model_programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "model/condition.h"
#include "plan/context_parallel.h"
#include "plan/expert_parallel.h"
#include "plan/expert_rules.h"
#include "plan/frozen.h"
#include "plan/kernel_table.h"
#include "plan/latent_rules.h"
#include "plan/native_parameters.h"
#include "plan/packed_rows.h"
#include "plan/preference_loss.h"
#include "plan/program_builder.h"
#include "plan/tensor_parallel.h"

namespace distsetup {
namespace {

OpAttributes attributes_of(const NativeFile& file, const NativeFile::Operation& o, const Geometry& geometry, LayerForm layer) {
  OpAttributes out;
  const auto take = [&](const std::map<std::string, std::string>& values) {
    for (const auto& entry : values) {
      const double number = number_of(entry.second, geometry, layer).value_or(0);  // a number, or the file was refused
      for (const AttributeField& a : attribute_fields())
        if (a.name == entry.first)
          std::visit([&](auto member) { out.*member = static_cast<std::decay_t<decltype(out.*member)>>(number); }, a.member);
    }
  };
  if (const auto common = file.attributes.find(o.op.kernel); common != file.attributes.end()) take(common->second);
  take(o.attributes);
  return out;
}

// The kernel of an activation by the name that a config.json gives it.
std::string kernel_name(const std::string& kernel, const Geometry& geometry) {
  const std::string& a = geometry.activation;
  constexpr std::string_view kGated = "gated_activation";
  if (kernel == "activation") return a;
  if (!kernel.starts_with(kGated)) return kernel;
  const std::string gated = a == "silu" ? "swiglu" : a == "gelu" ? "geglu" : a == "gelu_tanh" ? "geglu_tanh" : "gated " + a;
  return gated + kernel.substr(kGated.size());
}

const NativeFile::Unit& unit_of(const NativeFile& file, UnitKind kind) {
  return kind == UnitKind::kEmbedding ? file.embedding : kind == UnitKind::kHead ? file.head : file.block;
}

// Where not all of a model is trained: marks what is, adds adapters to `parameters`, and tells which slots have gradients.
class TunedSlots {
 public:
  TunedSlots(const NativeFile& file, const ProgramChoice& choice, const Geometry& geometry, std::vector<ParameterDecl>& parameters,
             const std::vector<ParameterDecl>& embedding)
      : is_tuned_(choice.unit != nullptr) {
    if (!is_tuned_) return;
    std::vector<Op> forward;
    for (const NativeFile::Operation& o : unit_of(file, choice.kind).forward)
      if (all_hold(o.when, geometry, choice.layer)) forward.push_back(o.op);
    with_gradients_ = slots_with_gradients(parameters, forward, choice.unit->trained);
    for (const std::string& slot : slots_with_gradients(embedding, {}, choice.unit->embedding_trained)) with_gradients_.insert(slot);
    for (ParameterDecl& p : parameters) p.trains = !p.balances && choice.unit->trained.contains(p.name);
    if (choice.tuning->is_quantized && choice.kind == UnitKind::kBlock)
      for (const Op& op : forward)
        if (op.kernel.starts_with("linear") && is_frozen(op.reads[1].substr(2)) && !scores_experts(op, forward))
          quantized_.insert(op.reads[1].substr(2));
    for (ParameterDecl& p : adapter_parameters(parameters, choice.unit->adapted, choice.tuning->rank)) {
      with_gradients_.insert(p.slot);
      parameters.push_back(std::move(p));
    }
  }
  bool is_frozen(const std::string& slot) const { return is_tuned_ && !with_gradients_.contains(slot); }
  const std::set<std::string>& with_gradients() const { return with_gradients_; }
  const std::set<std::string>& quantized() const { return quantized_; }

 private:
  const bool is_tuned_;
  std::set<std::string> with_gradients_, quantized_;
};

// Ranks of tensor parallelism route tokens of their own: they split the experts as other states, not each matrix.
bool is_in_expert_unit(const ParameterDecl& p, const ProgramSplit& split) { return p.expert >= 0 && (split.ep > 1 || split.tp > 1); }

std::string build(const NativeFile& file, const ProgramChoice& choice, const Geometry& geometry, Program& program) {
  const auto& [kind, layer, split, tuning, tuned] = choice;
  const int tp = split.tp;
  const NativeFile::Unit& unit = unit_of(file, kind);
  program.kind = kind;
  program.name = name(kind);
  if (kind == UnitKind::kBlock && layer.local && geometry.global_layer_every != 0) program.name += ".local";
  if (kind == UnitKind::kBlock && !layer.experts && geometry.num_experts > 0) program.name += ".dense";
  if (kind == UnitKind::kBlock && !layer.rotated && geometry.unrotated_layer_every != 0) program.name += ".unrotated";
  program.prefix = unit.prefix;
  std::vector<ParameterDecl> parameters = parameters_of(unit, geometry, layer);
  if (std::string problem = parts_problem(parameters, geometry, tp); !problem.empty()) return problem;
  const std::vector<ParameterDecl> embedding = parameters_of(file.embedding, geometry, layer);
  const TunedSlots tuned_slots(file, choice, geometry, parameters, embedding);
  for (const ParameterDecl& p : parameters)
    (tuned_slots.quantized().contains(p.slot) ? program.quantized_parameters
     : tuned_slots.is_frozen(p.slot) ? (is_in_expert_unit(p, split) ? program.frozen_expert_parameters : program.frozen_parameters)
     : is_in_expert_unit(p, split)   ? program.expert_parameters
     : tp > 1 && p.split < 0         ? program.shared_parameters
                                     : program.parameters)
        .push_back(p);
  std::map<std::string, SlotShape> slots = slots_of(parameters);
  add_record_slots(program.quantized_parameters, slots);
  const auto embedding_slots = slots_of(embedding);
  for (const NativeFile::Operation& o : unit.forward) {
    if (!all_hold(o.when, geometry, layer)) continue;
    for (const std::string& r : o.op.reads) {
      const std::string slot = r.starts_with("p:") ? r.substr(2) : "";
      if (kind != UnitKind::kHead || slot.empty() || slots.contains(slot) || !embedding_slots.contains(slot)) continue;
      slots[slot] = embedding_slots.at(slot);
      (tuned_slots.is_frozen(slot) ? program.borrowed_frozen_slots : program.borrowed_slots).push_back(slot);
    }
  }
  if (kind != UnitKind::kEmbedding) program.tensors.push_back({"x", {tp > 1 ? "Ts" : "T", "h"}});
  ProgramBuilder builder(program, std::move(slots));
  const Adapters adapters = {parameters, tuned, tuning, native_symbols(geometry, 1, 1, {.tp = tp}), tp};
  for (const NativeFile::Operation& o : unit.forward) {
    if (!all_hold(o.when, geometry, layer)) continue;
    Op op = o.op;
    op.kernel = kernel_name(op.kernel, geometry);
    op.attributes = attributes_of(file, o, geometry, layer);
    if (has_expert_rows(op)) op = with_capacity(std::move(op), geometry);
    if (split.preference && op.kernel == "cross_entropy") {
      add_preference_loss(op, split, builder);
      continue;
    }
    if (split.cp > 1 && is_attention(op)) {
      add_shared_attention(std::move(op), split, builder);
      continue;
    }
    if (split.cp > 1) share_balance(op, split.cp, builder);
    if (split.packed) op = over_documents(std::move(op));
    const auto unpacked = [&](Op product) {
      return over_unpacked(std::move(product), parameters, tuned_slots.quantized(), tp, builder);
    };
    if (split.ep > 1 && has_expert_rows(op)) {
      add_over_experts(op, builder);
    } else if (tp > 1) {
      if (op.kernel == "router_z_loss") op.attributes.tensor_ranks = tp;
      add_split(op, builder, {add_low(op, adapters, builder), unpacked});
    } else {
      builder.add(unpacked(op));
      add_low(op, adapters, builder)(op.writes[0]);
    }
  }
  const std::string problem = builder.finish(kind == UnitKind::kHead ? split.loss_chunks : 1);
  if (problem.empty() && tuned != nullptr) drop_dead_gradients(program, tuned_slots.with_gradients(), tuned->passes_gradient, builder);
  return problem;
}

// What the file asks of a model, and the model of it.
std::string unmet_need(const NativeFile& file, const Geometry& geometry) {
  if (const MissingKernel* missing = always_missing(file.missing, geometry))
    return fmt::format("there is no kernel for {}", missing->kernel);
  const std::vector<std::string>& known = file.layer_classes;
  if (!known.empty() && !geometry.layer_class.empty() && std::find(known.begin(), known.end(), geometry.layer_class) == known.end())
    return fmt::format("the program of {} is one of {}, the model has layers of class {}", file.name, known.front(),
                       geometry.layer_class);
  for (const std::string& need : file.needs) {
    if (all_hold({need}, geometry, {})) continue;
    const std::string_view field = condition_subject(need);
    return fmt::format("the program of {} needs {}, the model has {} {}", file.name, need, field, subject_text(field, geometry, {}));
  }
  // What few families have, a file that does not speak of it leaves out.
  for (const std::string_view trait : {"attention_sinks", "swiglu_limit"}) {
    const auto is_it = [&](const std::string& need) { return condition_subject(need) == trait; };
    if (all_hold({std::string(trait)}, geometry, {}) && std::none_of(file.needs.begin(), file.needs.end(), is_it))
      return fmt::format("the program of {} has no {}", file.name, trait);
  }
  return "";
}

std::string block_problem(const Program& block, LayerForm layer, const Geometry& geometry) {
  if (layer.experts && !has_experts(block)) return fmt::format("{} experts; its blocks are dense", geometry.num_experts);
  const bool latent = geometry.attention == Attention::kLatent;
  return latent == has_latents(block) ? "" : latent ? "latent attention (MLA)" : "plain attention";
}

}  // namespace

Program program_of(const NativeFile& file, const ProgramChoice& choice, const Geometry& geometry) {
  Program program;
  const std::string problem = build(file, choice, geometry, program);
  CHECK(problem.empty(), "native program '{}', {}: {}", file.name, name(choice.kind), problem);
  return program;
}

std::string model_programs(const NativeFile& file, const Geometry& geometry, const ProgramSplit& split, NativePrograms& programs) {
  std::string problem = unmet_need(file, geometry);
  if (!problem.empty()) return problem;
  programs.file = file.name;
  programs.buffers = file.buffers;
  const auto make = [&](UnitKind kind, LayerForm layer, Program& program) {
    problem = build(file, {kind, layer, split}, geometry, program);
    return problem.empty();
  };
  if (!make(UnitKind::kEmbedding, {}, programs.embedding) || !make(UnitKind::kHead, {}, programs.head)) return problem;
  std::map<LayerForm, int> kinds;
  for (int64_t i = 0; i < geometry.num_layers; ++i) {
    const LayerForm layer = layer_form(geometry, i);
    const auto [kind, is_new] = kinds.try_emplace(layer, static_cast<int>(kinds.size()));
    programs.kind_of_layer.push_back(kind->second);
    if (!is_new) continue;
    if (!make(UnitKind::kBlock, layer, programs.blocks.emplace_back())) return problem;
    if (problem = block_problem(programs.blocks.back(), layer, geometry); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace distsetup
