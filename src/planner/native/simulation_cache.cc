#include "planner/native/simulation_cache.h"

#include "plan/compile_schedule.h"
#include "plan/native_program.h"
#include "plan/reference.h"

namespace distsetup {
namespace {

Symbols symbols_of(const Plan& plan) {
  return native_symbols(plan.model, plan.micro_batch, plan.train.sequence_length, split_of(plan));
}

std::shared_ptr<const WholeList> whole_list(const Plan& plan) {
  Plan one = plan;
  one.hardware.nodes = 1;
  one.hardware.gpus_per_node = plan.mesh.world() / plan.mesh.pp;
  one.mesh.pp = one.strategy.virtual_stages = 1;
  const Schedule schedule = compile_schedule(one, Phase::kStep);
  auto whole = std::make_shared<WholeList>();
  whole->list = step_list(one, schedule);
  whole->unit_program = schedule.unit_variant;
  const Layout& layout = *schedule.layout;
  for (size_t u = 0; u < schedule.unit_variant.size(); ++u) {
    const int experts = layout.expert_unit(static_cast<int>(u));
    whole->unit_numel.push_back(layout.units[u].numel);
    whole->unit_expert_numel.push_back(experts < 0 ? 0 : layout.units[static_cast<size_t>(experts)].numel);
  }
  return whole;
}

}  // namespace

int64_t own_tokens(const Plan& plan) {
  return plan.micro_batch * sequences_per_sample(plan) * plan.train.sequence_length / plan.mesh.cp;
}

SimulationCache::SplitKey split_key(const Plan& plan) {
  const ProgramSplit split = split_of(plan);
  return {split.tp, split.cp, split.cp == 1 ? 0 : static_cast<int>(split.cp_method), split.ep, split.loss_chunks};
}

int offload_key(const Plan& plan) {
  const OffloadPlan& o = plan.offload;
  return 9 * static_cast<int>(o.optimizer) + 3 * static_cast<int>(o.parameters) + static_cast<int>(o.activations);
}

const UnitCost& cached_unit(const Plan& plan, const StepList& list, size_t program, SimulationCache& cache,
                            const std::set<int>& elsewhere) {
  static const UnitCost kUnused;
  const UnitProgram& unit = list.programs[program];
  if (unit.num_units == 0) return kUnused;  // every_k:1 has no block without recomputation
  const auto [it, fresh] = cache.by_variant.try_emplace({unit.variant->name, split_key(plan), own_tokens(plan), elsewhere});
  if (fresh) {
    const Symbols symbols = symbols_of(plan);
    it->second = {program_time(plan, unit, symbols, list.compute), profile(*unit.variant, symbols, list.compute, elsewhere)};
  }
  return it->second;
}

const RowCosts& cached_row(const Plan& plan, SimulationCache& cache) {
  const int policy = static_cast<int>(plan.recompute.policy);
  const SimulationCache::SplitKey split = split_key(plan);
  const auto [it, fresh] = cache.by_compute.try_emplace({policy, plan.recompute.every_k, split, own_tokens(plan), offload_key(plan)});
  if (!fresh) return it->second;
  std::shared_ptr<const WholeList>& whole = cache.by_policy[{policy, plan.recompute.every_k, split, offload_key(plan)}];
  if (whole == nullptr) whole = whole_list(plan);
  std::vector<UnitCost> costs;
  for (size_t program = 0; program < whole->list.programs.size(); ++program)
    costs.push_back(cached_unit(plan, whole->list, program, cache));
  it->second = row_costs(*whole, costs, symbols_of(plan));
  it->second.is_all = tuning_of(plan.train).trains_all() && plan.offload == OffloadPlan{} && !runs_reference(plan.train);
  return it->second;
}

}  // namespace distsetup
