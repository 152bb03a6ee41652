// Goals beyond "most tokens per second on this machine": loops around solve(). The fewest GPUs, the longest sequence, the least cost;
// and the questions people ask before they decide: what if (sweep), why this (decide), which strategy (rank_strategies).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "planner/planner.h"

namespace distsetup {

std::string_view name(Goal goal);  // throughput, min-gpus, max-context, min-cost, min-memory
std::vector<std::string> goal_names();
std::optional<Goal> goal_of(std::string_view name);

// make_plan() under problem.goal. Errors: kMaxContext without a number of nodes, kMinCost without a price, kMinGpus with nodes pinned.
Result<Plan> make_plan_for_goal(const Problem& problem);

// Seed 000's rule of thumb by parameter count, and what memory says.
struct SizeRule {
  std::string fired;                   // "7B to 30B: 2 to 8 GPUs"
  int fewest_gpus = 0, most_gpus = 0;  // 0 = no limit
  bool offload = false;
};
SizeRule size_rule(int64_t parameters);

}  // namespace distsetup
