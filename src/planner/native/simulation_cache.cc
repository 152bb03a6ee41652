#include "planner/native/simulation_cache.h"

#include "plan/native_program.h"
#include "plan/reference.h"
#include "planner/native/stages_bound.h"
#include "planner/native/whole_list.h"

namespace distsetup {
namespace {

Symbols symbols_of(const Plan& plan) {
  return native_symbols(plan.model, plan.micro_batch, plan.train.sequence_length, split_of(plan));
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

const UnitCost& cached_unit(const Plan& plan, const UnitProgram& unit, SimulationCache& cache) {
  static const UnitCost kUnused;
  if (unit.num_units == 0) return kUnused;  // every_k:1 has no block without recomputation
  const auto [it, fresh] = cache.by_variant.try_emplace({unit.variant->name, split_key(plan), own_tokens(plan)});
  if (fresh) {
    const Symbols symbols = symbols_of(plan);
    const Dtype compute = plan.precision.compute;
    it->second = {program_time(plan, unit, symbols, compute), profile(*unit.variant, symbols, compute, {})};
  }
  return it->second;
}

const VariantProfile& cached_live(const Plan& plan, const UnitProgram& unit, const std::set<int>& elsewhere, SimulationCache& cache) {
  if (elsewhere.empty() || unit.num_units == 0) return cached_unit(plan, unit, cache).live;
  const SimulationCache::UnitKey key = {unit.variant->name, split_key(plan), own_tokens(plan)};
  const auto [it, fresh] = cache.by_placement.try_emplace({key, elsewhere});
  if (fresh) it->second = profile(*unit.variant, symbols_of(plan), plan.precision.compute, elsewhere);
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
  for (const UnitProgram& program : whole->programs) costs.push_back(cached_unit(plan, program, cache));
  it->second = row_costs(*whole, costs, symbols_of(plan));
  it->second.is_all = tuning_of(plan.train).trains_all() && plan.offload == OffloadPlan{} && !runs_reference(plan.train);
  return it->second;
}

const std::vector<UnitSpan>& cached_parts(const Plan& plan, SimulationCache& cache) {
  std::vector<UnitSpan>& known = cache.parts[{plan.mesh.pp, plan.strategy.virtual_stages}];
  if (known.empty()) known = parts_of(plan);
  return known;
}

}  // namespace distsetup
