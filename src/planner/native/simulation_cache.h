// What candidates of one search share.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/pipeline.h"
#include "plan/plan.h"
#include "planner/native/row_costs.h"
#include "planner/native/step_time.h"

namespace distsetup {

// Model, method, what is trained, sequence length, precision and hardware (but for the number of nodes) are the same for all of them.
// A step is compiled once for all micro-batches of a mesh and strategy, a unit's program once for each micro-batch.
struct SimulationCache {
  using SplitKey = std::tuple<int, int, int, int, int>;  // tp, cp and its method, ep, chunks of the loss
  // Stages, chunks of each, which, and tokens of a micro-batch: what lives as long as the step is of a stage's list alone.
  using StageKey = std::tuple<int, int, int, int64_t>;
  // What a list depends on.
  using StepKey = std::tuple<int, bool, int, int, bool, int, int, SplitKey, int, int, int64_t, StageKey, int>;
  // Variant name, tokens of a rank's micro-batch.
  using UnitKey = std::tuple<std::string, SplitKey, int64_t>;
  std::map<UnitKey, UnitCost> by_variant;
  std::map<std::pair<UnitKey, std::set<int>>, VariantProfile> by_placement;  // and tensors that are not counted
  std::map<StepKey, std::shared_ptr<const StepList>> by_step;
  // Recompute policy, every_k, tokens of a micro-batch, what is offloaded.
  std::map<std::tuple<int, int, SplitKey, int64_t, int>, RowCosts> by_compute;
  // With these recomputations and without stages: any list has all programs.
  std::map<std::tuple<int, int, SplitKey, int>, std::shared_ptr<const WholeList>> by_policy;
  std::map<std::pair<int, int>, std::vector<UnitSpan>> parts;                // parts_of(): stages, chunks of each
  std::map<std::tuple<int, int, int, int64_t>, std::vector<int>> in_flight;  // most_in_flight(): stages, chunks, which, micro-batches
};

// Of a micro-batch, on one rank.
int64_t own_tokens(const Plan& plan);
// Ranks that run a program together.
SimulationCache::SplitKey split_key(const Plan& plan);
// What lies elsewhere than on the device.
int offload_key(const Plan& plan);
const UnitCost& cached_unit(const Plan& plan, const UnitProgram& unit, SimulationCache& cache);
// `elsewhere`: tensors that lie in buffers of the step.
const VariantProfile& cached_live(const Plan& plan, const UnitProgram& unit, const std::set<int>& elsewhere, SimulationCache& cache);
const RowCosts& cached_row(const Plan& plan, SimulationCache& cache);
const std::vector<UnitSpan>& cached_parts(const Plan& plan, SimulationCache& cache);

}  // namespace distsetup
