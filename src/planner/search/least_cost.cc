#include "planner/search/least_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/diagnostic_codes.h"
#include "planner/search/make_plan.h"
#include "planner/search/selection.h"
#include "planner/search/space.h"

namespace distsetup {
namespace {

constexpr double kTooMuch = std::numeric_limits<double>::infinity();

// The least cost of one machine, over numbers of nodes. More GPUs than the fewest leave more memory to each: less is recomputed,
// gathers serve more tokens.
struct CheapestOf {
  int nodes = 0;  // 0: nothing fits
  double usd_per_token = kTooMuch;
};

// USD per token of the best plan on so many nodes; kTooMuch when it is known not to be below `best`, nothing when nothing fits.
std::optional<double> cost_on(const Problem& p, int nodes, double best, Predictor& predictor) {
  const double usd_per_s = p.base.hardware.price_usd_per_gpu_hour / 3600;
  const SearchResult found =
      search(p, nodes, predictor, {.worst = Verdict::kFits, .most_s_per_token = best / usd_per_s, .nearest = false, .estimate = true});
  if (found.too_slow) return kTooMuch;
  // More memory than where something fits, and yet nothing does: what would is slower.
  if (found.best.empty()) return best < kTooMuch ? std::optional(kTooMuch) : std::nullopt;
  return usd_per_s / std::max(found.best.front().tokens_per_s_per_gpu, 1e-12);
}

// What more nodes gain comes in steps, so counts that differ by less than an eighth are not told apart; and beyond a few times the
// cheapest count more GPUs only add communication.
CheapestOf cheapest(const Problem& p) {
  constexpr int kCountStep = 8, kMostGrowth = 4;
  const std::unique_ptr<Predictor> predictor = make_predictor(p);
  CheapestOf best;
  int tried = 0;
  for (const int nodes : p.node_counts) {
    if (nodes != p.node_counts.front() && more_ranks_than_sequences(p, nodes)) break;
    if (tried > 0 && nodes < tried + tried / kCountStep) continue;
    const std::optional<double> usd = cost_on(p, nodes, best.usd_per_token, *predictor);
    if (!usd.has_value()) continue;
    tried = nodes;
    if (*usd < best.usd_per_token * (1 - 1e-9)) best = {nodes, *usd};
    if (best.nodes > 0 && nodes >= kMostGrowth * best.nodes) break;
  }
  return best;
}

}  // namespace

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
    const CheapestOf here = cheapest(p);
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

}  // namespace distsetup
