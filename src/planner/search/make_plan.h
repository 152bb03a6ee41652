// From a Problem to a Plan: the answer with its reasons, what to change when nothing fits, and what the run costs.
#pragma once
#include <string>
#include <vector>

#include "planner/resolve/problem.h"

namespace distsetup {

// The best plan that fits, or the one with the smallest shortfall (verdict kDoesNotFit, fixes in plan.diagnostics).
// Errors: no legal combination at all (indivisible batch, mesh that does not multiply out).
Result<Plan> make_plan(const Problem& problem);

// "Smallest that fits": per kind of GPU the fewest nodes whose best plan fits. nodes = 0: none does, up to kMaxNodes and
// one sequence per GPU.
struct SmallestFit {
  std::string gpu;  // preset id
  std::string gpu_name;
  int nodes = 0, gpus_per_node = 0, total_gpus = 0;
  int64_t device_bytes = 0, capacity_bytes = 0;
  double step_s = 0, tokens_per_s_per_gpu = 0;
  std::string strategy;  // "zero3 · micro-batch 2 · recompute selective"
};
std::vector<SmallestFit> smallest_that_fits(const Problem& problem);

}  // namespace distsetup
