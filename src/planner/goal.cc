#include "planner/goal.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "planner/search.h"
#include "planner/trainer_search.h"

namespace distsetup {
namespace {

constexpr Goal kGoals[] = {Goal::kThroughput, Goal::kMinGpus, Goal::kMaxContext, Goal::kMinCost, Goal::kMinMemory};
constexpr int64_t kContextStep = 1024;  // tokens; lengths that are tried are its multiples
constexpr int kCountStep = 8, kMostGrowth = 4;
constexpr double kHopeless = 3;  // times the best cost so far: memory alone does not make up for it
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
                         fmt::format("longest sequence that fits: {} tokens (tried in steps of {}); {} do not fit", format_count(fits),
                                     format_count(kContextStep), format_count(fits + kContextStep)));
    const int64_t stated = plan->model.max_positions;
    if (stated > 0 && fits > stated)
      plan->reasons.insert(
          plan->reasons.begin() + 1,
          fmt::format("the model states at most {} positions: beyond, its rotary base has to change", format_count(stated)));
  }
  return plan;
}

double usd_per_token(const Plan& plan) {
  return plan.hardware.price_usd_per_gpu_hour / 3600 / std::max(plan.time.tokens_per_s_per_gpu, 1e-12);
}

// The cheapest machine and number of nodes. More GPUs than the fewest leave more memory to each: less is recomputed, gathers serve
// more tokens. What that gains comes in steps, so counts that differ by less than an eighth are not told apart.
Result<Plan> least_cost(const Problem& problem) {
  std::vector<HardwarePlan> machines = {problem.base.hardware};
  if (problem.hardware_assumed) machines.insert(machines.end(), problem.other_hardware.begin(), problem.other_hardware.end());
  std::optional<Problem> best_problem;
  std::optional<Plan> best;
  bool any_price = false;
  std::vector<std::string> compared;
  for (const HardwarePlan& hardware : machines) {
    if (hardware.price_usd_per_gpu_hour <= 0) continue;
    any_price = true;
    Problem p = problem;
    p.base.hardware = hardware;
    if (p.hybrid) p.dp_shard = hardware.gpus_per_node;
    std::optional<Plan> here;
    int tried = 0;
    for (const int nodes : problem.node_counts) {
      if (nodes != problem.node_counts.front() && more_ranks_than_sequences(p, nodes)) break;
      if (here.has_value() && nodes < tried + tried / kCountStep) continue;
      Problem one = p;
      one.node_counts = {nodes};
      std::optional<Plan> plan = answer(one);
      if (plan.has_value()) tried = nodes;
      if (plan.has_value() && (!here.has_value() || usd_per_token(*plan) < usd_per_token(*here) * (1 - 1e-9))) here = std::move(plan);
      if (!here.has_value()) continue;
      if (nodes >= kMostGrowth * here->hardware.nodes) break;  // more GPUs only add communication
      if (best.has_value() && usd_per_token(*here) > kHopeless * usd_per_token(*best)) break;
    }
    if (!here.has_value()) continue;
    compared.push_back(fmt::format("{} × {} {}: {:.2f} USD per million tokens ({})", here->hardware.nodes,
                                   here->hardware.gpus_per_node, here->hardware.gpu_name, usd_per_token(*here) * 1e6,
                                   here->hardware.price_source));
    if (best.has_value() && usd_per_token(*best) <= usd_per_token(*here)) continue;
    best = std::move(here);
    best_problem = std::move(p);
    best_problem->node_counts = {best->hardware.nodes};
  }
  if (!any_price)
    return error(code::kMissingArgument, {}, fmt::format("no price of {} is known", problem.base.hardware.gpu_name),
                 "--price 2.50, in USD per GPU and hour");
  if (!best_problem.has_value()) return make_plan(problem);
  Result<Plan> plan = make_plan(*best_problem);
  if (plan.value) plan->reasons.insert(plan->reasons.begin(), compared.begin(), compared.end());
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
  std::vector<ParetoPoint> points;
  if (problem.trainer != nullptr) {
    for (const TrainerCandidate& c : pareto_front(problem, nodes))
      points.push_back(
          {summary(c.choice, problem.recompute_every_k), c.device_bytes, c.time.step_s, c.time.tokens_per_s_per_gpu, c.verdict});
    return points;
  }
  SimulationCache cache;
  SearchResult result = search(problem, nodes, cache, Shortfall::kSkip);
  std::vector<Candidate*> order;
  for (Candidate& c : result.candidates)
    if (c.simulated && c.verdict != Verdict::kDoesNotFit) order.push_back(&c);
  std::stable_sort(order.begin(), order.end(),
                   [](const Candidate* a, const Candidate* b) { return a->time.tokens_per_s_per_gpu > b->time.tokens_per_s_per_gpu; });
  int64_t least = INT64_MAX;
  for (const Candidate* c : order) {
    if (c->device_bytes >= least) continue;
    Plan plan = plan_of(problem, nodes, c->choice, Weight::kLight);
    finish(plan);  // live bytes order, packed bytes decide
    if (plan.verdict == Verdict::kDoesNotFit || plan.memory.device_bytes >= least) continue;
    least = plan.memory.device_bytes;
    points.push_back({summary(plan), least, c->time.step_s, c->time.tokens_per_s_per_gpu, plan.verdict});
  }
  return points;
}

SizeRule size_rule(int64_t parameters) {
  if (parameters < 1'000'000'000) return {"below 1B: one GPU", 1, 1, false};
  if (parameters < 7'000'000'000) return {"1B to 7B: one GPU, or 2 with FSDP", 1, 2, false};
  if (parameters < 30'000'000'000) return {"7B to 30B: 2 to 8 GPUs", 2, 8, false};
  return {"30B and more: 8 GPUs or more, offload to the host and full sharding", 8, 0, true};
}

}  // namespace distsetup
