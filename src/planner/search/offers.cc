// The fewest nodes on which something fits are tried first; then so many more as the deadline asks, or as the budget still pays. What
// more nodes gain is taken from plans, not from a rule, so that a count is found in a few of them.
#include "planner/search/offers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "planner/resolve/run_length.h"
#include "planner/search/answer.h"
#include "planner/search/choice.h"
#include "planner/search/space.h"
#include "planner/time/economics.h"

namespace distsetup {
namespace {

constexpr int kMostPlans = 8;          // of one kind of GPU
constexpr int kMostOfferNodes = 4096;  // 32,768 GPUs in nodes of 8

// Where nobody says how many nodes, and there is a network, a goal may ask for more than the one that is assumed.
Problem on_hardware(const Problem& problem, const HardwarePlan& hardware) {
  Problem p = problem;
  if (!p.nodes_given && p.node_counts.size() == 1 && hardware.network_bytes_per_s > 0 && hardware.accelerator != Accelerator::kCpu)
    p.node_counts = node_counts_from(1);
  p.base.hardware = hardware;
  p.base.data = {};
  if (p.hybrid) p.dp_shard = hardware.gpus_per_node;
  return p;
}

std::optional<GpuOffer> offer_on(const Problem& problem, std::vector<int> node_counts) {
  Problem p = problem;
  p.node_counts = std::move(node_counts);
  Diagnostics why;
  std::optional<Plan> plan = solve(p, why, Shortfall::kSkip);
  if (!plan.has_value() || !is_answer(*plan) || plan->time.step_s <= 0) return std::nullopt;
  settle_length(p.length, plan->train);
  GpuOffer out;
  out.nodes = plan->hardware.nodes;
  out.gpus_per_node = plan->hardware.gpus_per_node;
  out.step_s = plan->time.step_s;
  out.strategy = summary(*plan);
  const double gpus = plan->mesh.world();
  const double failures = failures_per_s(gpus, gpu_hours_per_failure(p.gpu_hours_per_failure));
  const double save_s = save_time_s(static_cast<double>(p.save_time_s));
  out.goodput = std::max(0.01, goodput(checkpoint_interval_s(save_s, failures), save_s, kAssumedRestartTime_s, failures));
  out.run_s = out.step_s * static_cast<double>(plan->train.steps) / out.goodput;
  out.gpu_hours = out.run_s / 3600 * gpus;
  out.usd = out.gpu_hours * plan->hardware.price_usd_per_gpu_hour;
  return out;
}

bool is_late(const GpuOffer& offer, const OfferWish& wish) { return wish.deadline_s > 0 && offer.run_s > wish.deadline_s; }
bool is_dear(const GpuOffer& offer, const OfferWish& wish) { return wish.budget_usd > 0 && offer.usd > wish.budget_usd; }

int next_nodes(const GpuOffer& offer, const OfferWish& wish) {
  const double more = is_late(offer, wish) ? offer.run_s / wish.deadline_s : 2;
  return std::min(kMostOfferNodes, std::max(offer.nodes + 1, static_cast<int>(std::ceil(offer.nodes * more))));
}

// From an offer on, with so many more nodes as the wish asks.
GpuOffer grown(const Problem& p, const OfferWish& wish, GpuOffer first) {
  std::optional<GpuOffer> best = std::move(first);
  const bool only_budget = wish.deadline_s <= 0 && wish.budget_usd > 0 && best->usd > 0;
  for (int tried = 1; tried < kMostPlans && (is_late(*best, wish) || only_budget) && !is_dear(*best, wish); ++tried) {
    int nodes = next_nodes(*best, wish);
    while (nodes > best->nodes && more_ranks_than_sequences(p, nodes)) {
      nodes = best->nodes + (nodes - best->nodes) / 2;
      best->batch_bound = true;
    }
    if (nodes == best->nodes) break;
    std::optional<GpuOffer> larger = offer_on(p, {nodes});
    if (!larger.has_value() || larger->run_s >= best->run_s || (only_budget && is_dear(*larger, wish))) break;
    best = std::move(larger);
  }
  return *best;
}

// On numbers of nodes that are given: the first on which something fits.
std::optional<GpuOffer> best_on(const Problem& p, const OfferWish& wish, bool is_own) {
  std::optional<GpuOffer> best = offer_on(p, p.node_counts);
  if (!best.has_value()) return best;
  if (p.node_counts.size() > 1) return grown(p, wish, *best);
  if (!is_own || !is_late(*best, wish)) return best;
  const GpuOffer more = grown(p, {.deadline_s = wish.deadline_s}, *best);
  best->batch_bound = more.batch_bound;
  if (!is_late(more, wish)) best->nodes_in_time = more.nodes;
  return best;
}

std::string what_misses(const GpuOffer& offer, const OfferWish& wish) {
  if (is_late(offer, wish)) return "late";
  if (is_dear(offer, wish)) return "too dear";
  return wish.budget_usd > 0 && offer.usd <= 0 ? "no price" : "";
}

}  // namespace

std::vector<GpuOffer> offers(const Problem& problem, const OfferWish& wish) {
  std::vector<HardwarePlan> all = {problem.base.hardware};
  for (const HardwarePlan& other : problem.compared_hardware)
    if (other.gpu != all.front().gpu) all.push_back(other);
  std::vector<GpuOffer> out;
  for (const HardwarePlan& hardware : all) {
    const Problem p = on_hardware(problem, hardware);
    GpuOffer offer = best_on(p, wish, hardware.gpu == all.front().gpu).value_or(GpuOffer{});
    offer.gpu = hardware.gpu;
    offer.gpu_name = hardware.gpu_name;
    offer.gpus_per_node = hardware.gpus_per_node;
    offer.price_source = hardware.price_usd_per_gpu_hour > 0 ? hardware.price_source : "";
    offer.misses = offer.nodes == 0 ? "nothing fits" : what_misses(offer, wish);
    out.push_back(std::move(offer));
  }
  std::stable_sort(out.begin(), out.end(), [](const GpuOffer& a, const GpuOffer& b) {
    const auto order = [](const GpuOffer& o) { return std::tuple(o.nodes == 0, !o.misses.empty(), o.usd <= 0, o.usd, o.run_s); };
    return order(a) < order(b);
  });
  return out;
}

}  // namespace distsetup
