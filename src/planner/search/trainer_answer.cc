// The answer for another trainer than the bundled one: on how many nodes, which of the plans that search found, and what is said of
// it.
#include <fmt/format.h>

#include "base/quantity.h"
#include "model/count.h"
#include "planner/frameworks/memory.h"
#include "planner/frameworks/state_bytes.h"
#include "planner/search/trainer_search.h"

namespace distsetup {
namespace {

// "states: 16 B per parameter (parameter 2, gradient 2, optimizer 12) × 8,030,261,248: at least 14.0 GiB per GPU here".
std::string states_reason(const Setup& s) {
  const int64_t parameters = count_parameters(s.model).total;
  if (s.finetune != Finetune::kFull)
    return fmt::format("states: {} frozen parameters at {:.3g} B and adapters of rank {}", format_count(parameters),
                       bytes_of(s.frozen_dtype), s.lora.rank);
  const StateBytes b = state_bytes(s);
  return fmt::format(
      "states: {:.4g} B per parameter (parameter {:.3g}, gradient {:.3g}, optimizer {:.4g}) × {}: at least {} per GPU here",
      b.parameter + b.gradient + b.optimizer, b.parameter, b.gradient, b.optimizer, format_count(parameters),
      format_bytes(bound_bytes(s)));
}

// The clause that decided against a plan that fits as well, by the rule of choice: speed, axes, sharding, recomputation, memory.
std::string why_not(const TrainerCandidate& c, const TrainerCandidate& best, Goal goal) {
  const double ratio = c.time.tokens_per_s_per_gpu / best.time.tokens_per_s_per_gpu;
  if (goal == Goal::kMinMemory && c.device_bytes == best.device_bytes) return fmt::format("as little memory, {:.2f}× tokens/s", ratio);
  if (goal == Goal::kMinMemory) return fmt::format("{} more memory", format_bytes(c.device_bytes - best.device_bytes));
  if (ratio < 1 - kTimeTie) return fmt::format("{:.2f}× tokens/s", ratio);
  const auto [axes, sharding, recompute, bytes, micro] = simplicity(c);
  const auto [best_axes, best_sharding, best_recompute, best_bytes, best_micro] = simplicity(best);
  const std::string clause = axes != best_axes             ? "more axes"
                             : sharding != best_sharding   ? "more sharding"
                             : recompute != best_recompute ? "more recompute"
                             : bytes != best_bytes         ? format_bytes(bytes - best_bytes) + " more memory"
                                                           : "a larger micro-batch";
  return fmt::format("{:.2f}×, {}", ratio, clause);
}

struct FoundTrainerPlan {
  int nodes = 0;
  TrainerSearchResult result;
  int most_too_few = 0;  // the largest number of nodes on which nothing fits
};

// The fewest nodes on which something fits. Nothing fits on any: the first on which something is tight, else the last.
std::optional<FoundTrainerPlan> fewest_nodes(const Problem& problem, Diagnostics& why, Shortfall shortfall) {
  constexpr int kShown = 5;
  std::vector<int> legal;
  for (const int nodes : problem.node_counts) {
    if (nodes != problem.node_counts.front() && more_ranks_than_sequences(problem, nodes)) break;
    TrainerSearchResult found =
        search_trainer(problem, nodes, {.wanted = shortfall == Shortfall::kSkip ? 1 : kShown, .worst = Verdict::kFits});
    if (found.counts.legal == 0) {
      if (why.empty()) why = std::move(found.why);
      continue;
    }
    if (!found.best.empty()) return FoundTrainerPlan{nodes, std::move(found), legal.empty() ? 0 : legal.back()};
    legal.push_back(nodes);
  }
  if (legal.empty() || shortfall == Shortfall::kSkip) return std::nullopt;
  FoundTrainerPlan tight;
  for (const int nodes : legal) {
    tight = {nodes, search_trainer(problem, nodes, {.wanted = kShown, .nearest = nodes == legal.back()}), legal.back()};
    if (!tight.result.best.empty()) break;
  }
  return tight;
}

}  // namespace

std::optional<Plan> solve_trainer(const Problem& problem, Diagnostics& why, Shortfall shortfall) {
  const std::optional<FoundTrainerPlan> kept = fewest_nodes(problem, why, shortfall);
  if (!kept.has_value()) return std::nullopt;
  why.clear();
  const int nodes = kept->nodes;
  const TrainerSearchResult& result = kept->result;
  const bool found = !result.best.empty();
  Plan plan = plan_of(problem, nodes, found ? result.best.front() : *result.smallest);
  const int64_t capacity = plan.memory.capacity_bytes;
  const int every_k = problem.recompute_every_k;
  for (const TrainerCandidate& c : result.faster) {
    plan.alternatives.push_back({summary(c.choice, every_k), c.verdict, c.device_bytes, c.time.step_s,
                                 c.verdict == Verdict::kTight
                                     ? fmt::format("tight: {} of {}", format_bytes(c.device_bytes), format_bytes(capacity))
                                     : fmt::format("does not fit by {}", format_bytes(c.device_bytes - capacity))});
  }
  for (size_t i = 1; i < result.best.size(); ++i) {
    const TrainerCandidate& c = result.best[i];
    plan.alternatives.push_back(
        {summary(c.choice, every_k), c.verdict, c.device_bytes, c.time.step_s, why_not(c, result.best.front(), problem.goal)});
  }
  plan.reasons.push_back(states_reason(setup_of(problem, nodes, found ? result.best.front().choice : result.smallest->choice)));
  const SearchCounts& n = result.counts;
  plan.reasons.push_back(fmt::format("searched {} combinations: {} ruled out by their states, {} timed, {} simulated, {} replayed",
                                     format_count(n.legal), format_count(n.bounded_out), format_count(n.timed),
                                     format_count(n.simulated), format_count(n.replayed)));
  if (kept->most_too_few > 0 && kept->most_too_few < nodes)
    plan.reasons.push_back(fmt::format("{} node{} too few", kept->most_too_few, kept->most_too_few == 1 ? " is" : "s are"));
  if (!found) plan.reasons.push_back("nothing fits: of all of them this one misses by least");
  const std::string& target = problem.trainer->chosen_for;
  plan.diagnostics.push_back(
      note("DS0604", {},
           fmt::format("planned for {}{}", problem.trainer->facts.label,
                       target.empty() ? ": the bundled trainer does not run this plan"
                                      : ", which target " + target + " is for; --trainer native plans for the bundled one")));
  return plan;
}

}  // namespace distsetup
