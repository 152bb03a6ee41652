#include "planner/search/goal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "planner/search/search.h"
#include "planner/search/trainer_search.h"

namespace distsetup {
namespace {

constexpr Goal kGoals[] = {Goal::kThroughput, Goal::kMinGpus, Goal::kMaxContext, Goal::kMinCost, Goal::kMinMemory};
constexpr int64_t kContextStep = 1024;  // tokens; lengths that are tried are its multiples
constexpr int kCountStep = 8, kMostGrowth = 4;
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

double usd_per_token(const HardwarePlan& hardware, double tokens_per_s_per_gpu) {
  return hardware.price_usd_per_gpu_hour / 3600 / std::max(tokens_per_s_per_gpu, 1e-12);
}

// The least cost of one machine, over numbers of nodes. More GPUs than the fewest leave more memory to each: less is recomputed,
// gathers serve more tokens.
struct CheapestOf {
  int nodes = 0;  // 0: nothing fits
  double usd_per_token = std::numeric_limits<double>::infinity();
};

// What more nodes gain comes in steps, so counts that differ by less than an eighth are not told apart; and beyond a few times the
// cheapest count more GPUs only add communication. `cost_on(nodes, best)`: USD per token of the best plan on so many nodes, infinite
// when it is known not to be below `best`, nothing when nothing fits.
template <class CostOn>
CheapestOf cheapest(const Problem& p, CostOn cost_on) {
  CheapestOf best;
  int tried = 0;
  for (const int nodes : p.node_counts) {
    if (nodes != p.node_counts.front() && more_ranks_than_sequences(p, nodes)) break;
    if (tried > 0 && nodes < tried + tried / kCountStep) continue;
    const std::optional<double> usd = cost_on(nodes, best.usd_per_token);
    if (!usd.has_value()) continue;
    tried = nodes;
    if (*usd < best.usd_per_token * (1 - 1e-9)) best = {nodes, *usd};
    if (best.nodes > 0 && nodes >= kMostGrowth * best.nodes) break;
  }
  return best;
}

CheapestOf cheapest_native(const Problem& p) {
  constexpr double kTooMuch = std::numeric_limits<double>::infinity();
  SimulationCache cache;
  return cheapest(p, [&](int nodes, double best) -> std::optional<double> {
    const double least_s = least_s_per_token(p, nodes, cache);
    if (std::isinf(least_s)) return std::nullopt;
    const double most_s = best / (p.base.hardware.price_usd_per_gpu_hour / 3600);  // what costs less than the best takes less
    if (least_s >= most_s) return kTooMuch;
    const SearchResult found = search(p, nodes, cache, SearchEffort::kEstimate, most_s);
    if (found.best < 0 && best < kTooMuch) return kTooMuch;  // more memory than where something fits: it is slower
    if (found.best < 0 || found.candidates[static_cast<size_t>(found.best)].verdict != Verdict::kFits) return std::nullopt;
    return usd_per_token(p.base.hardware, found.candidates[static_cast<size_t>(found.best)].time.tokens_per_s_per_gpu);
  });
}

CheapestOf cheapest_of_trainer(const Problem& p) {
  return cheapest(p, [&](int nodes, double best) -> std::optional<double> {
    const double needed = p.base.hardware.price_usd_per_gpu_hour / 3600 / best;  // tokens/s per GPU
    const TrainerSearchResult found = search_trainer(p, nodes, {.wanted = 1, .worst = Verdict::kFits, .least_speed = needed});
    if (found.too_slow) return std::numeric_limits<double>::infinity();
    if (found.best.empty()) return std::nullopt;
    return usd_per_token(p.base.hardware, found.best.front().time.tokens_per_s_per_gpu);
  });
}

// The cheapest machine and number of nodes.
Result<Plan> least_cost(const Problem& problem) {
  std::vector<HardwarePlan> machines = {problem.base.hardware};
  if (problem.hardware_assumed) machines.insert(machines.end(), problem.other_hardware.begin(), problem.other_hardware.end());
  std::optional<Problem> best_problem;
  double best_usd = std::numeric_limits<double>::infinity();
  bool any_price = false;
  std::vector<std::string> compared;
  for (const HardwarePlan& hardware : machines) {
    if (hardware.price_usd_per_gpu_hour <= 0) continue;
    any_price = true;
    Problem p = problem;
    p.base.hardware = hardware;
    if (p.hybrid) p.dp_shard = hardware.gpus_per_node;
    const CheapestOf here = p.trainer != nullptr ? cheapest_of_trainer(p) : cheapest_native(p);
    if (here.nodes == 0) continue;
    compared.push_back(fmt::format("{} × {} {}: {:.2f} USD per million tokens ({})", here.nodes, hardware.gpus_per_node,
                                   hardware.gpu_name, here.usd_per_token * 1e6, hardware.price_source));
    if (best_usd <= here.usd_per_token) continue;
    best_usd = here.usd_per_token;
    best_problem = std::move(p);
    best_problem->node_counts = {here.nodes};
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
  SearchResult result = search(problem, nodes, cache, SearchEffort::kAll);
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
