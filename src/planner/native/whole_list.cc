#include "planner/native/whole_list.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/check.h"
#include "plan/compile_schedule.h"
#include "plan/native_program.h"
#include "plan/reference.h"
#include "plan/schedule_writer.h"

namespace distsetup {
namespace {

Plan without_stages(const Plan& plan) {
  Plan one = plan;
  one.hardware.nodes = 1;
  one.hardware.gpus_per_node = plan.mesh.world() / plan.mesh.pp;
  one.mesh.pp = one.strategy.virtual_stages = 1;
  return one;
}

using SlotSizes = std::map<std::string, int64_t>;  // elements by slot

// Of a program on one rank, as its layout has them (plan/layout.cc).
struct ProgramSlots {
  SlotSizes own, shared, experts;

  ProgramSlots(const Program& program, const Plan& plan, const Symbols& symbols) {
    const bool is_apart = plan.mesh.ep > 1 || plan.mesh.tp > 1;
    add(program.parameters, INT64_MAX, symbols, own);
    add(program.shared_parameters, INT64_MAX, symbols, shared);
    add(program.expert_parameters, is_apart ? plan.model.num_experts / plan.mesh.ep : INT64_MAX, symbols, experts);
  }

 private:
  // Experts beyond the first so many are other ranks'.
  static void add(const std::vector<ParameterDecl>& decls, int64_t num_experts, const Symbols& symbols, SlotSizes& sizes) {
    const std::vector<std::string>* shape = nullptr;
    int64_t numel = 0;
    for (const ParameterDecl& decl : decls) {
      if (decl.expert >= num_experts) continue;
      if (shape == nullptr || *shape != decl.shape) {
        numel = 1;
        for (const std::string& size : decl.shape) numel *= evaluate(size, symbols);
        shape = &decl.shape;
      }
      sizes[decl.slot] += numel;
    }
  }
};

int64_t sum(const SlotSizes& sizes) {
  int64_t n = 0;
  for (const auto& [slot, numel] : sizes) n += numel;
  return n;
}

std::vector<double> slot_elements(const ProgramVariant& v, const ProgramSlots& slots, const ProgramSlots& embedding) {
  std::vector<double> out;
  for (size_t i = 0; i < v.slots.size(); ++i) {
    const SlotHome home = v.homes[i];
    const SlotSizes& sizes = home == SlotHome::kOwn         ? slots.own
                             : home == SlotHome::kEmbedding ? embedding.own
                             : home == SlotHome::kShared    ? slots.shared
                                                            : slots.experts;
    const auto found = sizes.find(v.slots[i]);
    CHECK(found != sizes.end(), "{} has no slot '{}'", v.name, v.slots[i]);
    out.push_back(static_cast<double>(found->second));
  }
  return out;
}

}  // namespace

std::shared_ptr<const WholeList> compiled_whole_list(const Plan& plan) {
  const Plan one = without_stages(plan);
  const Schedule schedule = compile_schedule(one, Phase::kStep, 0, LayoutDetail::kSizes);
  auto whole = std::make_shared<WholeList>();
  whole->compute = schedule.compute;
  whole->programs = unit_programs(schedule);
  whole->unit_program = schedule.unit_variant;
  const Layout& layout = *schedule.layout;
  for (size_t u = 0; u < schedule.unit_variant.size(); ++u) {
    const int experts = layout.expert_unit(static_cast<int>(u));
    whole->unit_numel.push_back(layout.units[u].numel);
    whole->unit_expert_numel.push_back(experts < 0 ? 0 : layout.units[static_cast<size_t>(experts)].numel);
  }
  return whole;
}

std::shared_ptr<const WholeList> whole_list(const Plan& plan) {
  if (!tuning_of(plan.train).trains_all() || runs_reference(plan.train)) return compiled_whole_list(plan);
  const Plan one = without_stages(plan);
  Schedule schedule;
  const ProgramSplit split = split_of(one);
  schedule.phase = Phase::kStep;
  schedule.programs = native_programs(one.model, split, tuning_of(one.train));
  schedule.compute = one.precision.compute;
  derive_variants(one, static_cast<int>(one.model.num_layers) + 2, schedule);
  const Symbols symbols = native_symbols(one.model, one.mesh.tp, 1, {.tp = one.mesh.tp});
  std::map<const Program*, ProgramSlots> slots;
  const auto slots_of = [&](const Program& program) -> const ProgramSlots& {
    const auto known = slots.find(&program);
    return known != slots.end() ? known->second : slots.emplace(&program, ProgramSlots(program, one, symbols)).first->second;
  };
  auto whole = std::make_shared<WholeList>();
  whole->compute = schedule.compute;
  whole->unit_program = schedule.unit_variant;
  for (int v = 0; v < static_cast<int>(schedule.variants.size()); ++v) {
    const std::shared_ptr<const ProgramVariant>& variant = schedule.variants[static_cast<size_t>(v)];
    UnitProgram unit{schedule.programs, variant, {}, std::count(whole->unit_program.begin(), whole->unit_program.end(), v)};
    if (unit.num_units > 0)
      unit.slot_elements = slot_elements(*variant, slots_of(*variant->program), slots_of(schedule.programs->embedding));
    whole->programs.push_back(std::move(unit));
  }
  for (const int v : whole->unit_program) {
    const ProgramSlots& of = slots_of(*schedule.variants[static_cast<size_t>(v)]->program);
    whole->unit_numel.push_back(sum(of.own));
    whole->unit_expert_numel.push_back(sum(of.experts));
  }
  return whole;
}

}  // namespace distsetup
