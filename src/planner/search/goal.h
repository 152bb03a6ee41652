// Goals beyond "most tokens per second on this machine": loops around solve(). The fewest GPUs, the longest sequence, the least cost;
// and what a goal is compared with: the plans that no other beats, and the rule of thumb.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "planner/resolve/problem.h"

namespace distsetup {

std::string_view name(Goal goal);  // throughput, min-gpus, max-context, min-cost, min-memory
std::vector<std::string> goal_names();
std::optional<Goal> goal_of(std::string_view name);

// make_plan() under problem.goal. Errors: kMaxContext without a number of nodes, kMinCost without a price, kMinGpus with nodes pinned.
Result<Plan> make_plan_for_goal(const Problem& problem);

// A plan that no other beats in both memory and speed.
struct ParetoPoint {
  std::string summary;
  int64_t device_bytes = 0;
  double step_s = 0, tokens_per_s_per_gpu = 0;
  Verdict verdict = Verdict::kFits;
};
// Of all plans on this many nodes that fit or are tight, fastest first.
std::vector<ParetoPoint> pareto_points(const Problem& problem, int nodes);

// The rule of thumb by parameter count that guides state.
struct SizeRule {
  std::string fired;                   // "7B to 30B: 2 to 8 GPUs"
  int fewest_gpus = 0, most_gpus = 0;  // 0 = no limit
  bool offload = false;
};
SizeRule size_rule(int64_t parameters);

}  // namespace distsetup
