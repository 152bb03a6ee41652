#include "planner/search/goal.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "planner/search/answer.h"
#include "planner/search/least_cost.h"
#include "planner/search/make_plan.h"

namespace distsetup {
namespace {

constexpr Goal kGoals[] = {Goal::kThroughput, Goal::kMinGpus, Goal::kMaxContext, Goal::kMinCost, Goal::kMinMemory};
constexpr int64_t kContextStep = 1024;  // tokens; lengths that are tried are its multiples
constexpr int64_t kLongestContext = int64_t{16} << 20;

std::optional<Plan> answer(const Problem& problem) {
  Diagnostics why;
  std::optional<Plan> plan = solve(problem, why, Shortfall::kSkip);
  if (!plan.has_value() || !is_answer(*plan)) return std::nullopt;
  return plan;
}

Problem with_gpus(const Problem& problem, int nodes, int gpus_per_node) {
  Problem p = problem;
  p.node_counts = {nodes};
  HardwarePlan& h = p.base.hardware;
  h.network_bytes_per_s *= static_cast<double>(h.gpus_per_node) / gpus_per_node;
  if (p.hybrid) p.dp_shard = gpus_per_node;
  h.gpus_per_node = gpus_per_node;
  return p;
}

Problem with_length(const Problem& problem, int64_t length) {
  Problem p = problem;
  p.base.train.sequence_length = length;
  if (p.global_batch == 0 && p.global_batch_tokens > 0) p.global_batch_tokens = std::max(p.global_batch_tokens, length);
  return p;
}

Result<Plan> fewest_gpus(const Problem& problem) {
  const int per_node = problem.base.hardware.gpus_per_node;
  for (int gpus = 1; gpus < per_node && !problem.gpus_per_node_given; gpus *= 2) {
    const Problem p = with_gpus(problem, 1, gpus);
    if (answer(p).has_value()) return make_plan(p);
  }
  return make_plan(problem);  // node counts ascend, the first that fits is taken
}

Result<Plan> longest_context(const Problem& problem) {
  if (problem.node_counts.size() != 1)
    return error(code::kMissingArgument, {}, "the longest sequence depends on the number of GPUs, and no number of nodes is given",
                 "--nodes 1");
  int64_t fits = 0, fails = kLongestContext + kContextStep;
  for (int64_t length = kContextStep; length <= kLongestContext; length *= 2) {
    if (!answer(with_length(problem, length)).has_value()) {
      fails = length;
      break;
    }
    fits = length;
  }
  if (fits == 0) return make_plan(with_length(problem, kContextStep));
  while (fails - fits > kContextStep) {
    const int64_t middle = (fits + fails) / 2 / kContextStep * kContextStep;
    (answer(with_length(problem, middle)).has_value() ? fits : fails) = middle;
  }
  Result<Plan> plan = make_plan(with_length(problem, fits));
  if (plan.value) {
    plan->reasons.insert(plan->reasons.begin(),
                         fmt::format("longest sequence that fits: {} tokens (tried in steps of {}); {} are tight or do not fit",
                                     format_count(fits), format_count(kContextStep), format_count(fits + kContextStep)));
    const int64_t stated = plan->model.max_positions;
    if (stated > 0 && fits > stated)
      plan->reasons.insert(
          plan->reasons.begin() + 1,
          fmt::format("the model states at most {} positions: beyond, its rotary base has to change", format_count(stated)));
  }
  return plan;
}

}  // namespace

std::string_view name(Goal goal) {
  switch (goal) {
    case Goal::kThroughput: return "throughput";
    case Goal::kMinGpus: return "min-gpus";
    case Goal::kMaxContext: return "max-context";
    case Goal::kMinCost: return "min-cost";
    case Goal::kMinMemory: return "min-memory";
  }
  return "";
}

std::vector<std::string> goal_names() {
  std::vector<std::string> names;
  for (const Goal goal : kGoals) names.emplace_back(name(goal));
  return names;
}

std::optional<Goal> goal_of(std::string_view text) {
  for (const Goal goal : kGoals)
    if (name(goal) == text) return goal;
  return std::nullopt;
}

Result<Plan> make_plan_for_goal(const Problem& problem) {
  switch (problem.goal) {
    case Goal::kThroughput:
    case Goal::kMinMemory: return make_plan(problem);
    case Goal::kMinGpus: return fewest_gpus(problem);
    case Goal::kMaxContext: return longest_context(problem);
    case Goal::kMinCost: return least_cost(problem);
  }
  return make_plan(problem);
}

std::vector<ParetoPoint> pareto_points(const Problem& problem, int nodes) {
  const std::unique_ptr<Predictor> predictor = make_predictor(problem);
  std::vector<ParetoPoint> points;
  for (const Candidate& c : pareto_front(problem, nodes, *predictor))
    points.push_back({summary(c.choice, problem.recompute_every_k), c.device_bytes, c.step_s, c.tokens_per_s_per_gpu, c.verdict});
  return points;
}

SizeRule size_rule(int64_t parameters) {
  if (parameters < 1'000'000'000) return {"below 1B: one GPU", 1, 1, false};
  if (parameters < 7'000'000'000) return {"1B to 7B: one GPU, or 2 with FSDP", 1, 2, false};
  if (parameters < 30'000'000'000) return {"7B to 30B: 2 to 8 GPUs", 2, 8, false};
  return {"30B and more: 8 GPUs or more, offload to the host and full sharding", 8, 0, true};
}

}  // namespace distsetup
