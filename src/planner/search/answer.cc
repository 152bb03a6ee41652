#include "planner/search/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/quantity.h"
#include "plan/chunked_loss.h"
#include "planner/report/words.h"
#include "planner/search/space.h"

namespace distsetup {
namespace {

constexpr int kListedChoices = 5;  // the answer and its runners-up

// The clause that decided against a plan that fits as well, by the rule of choice.
std::string why_not(const Candidate& c, const Candidate& best, Goal goal, const SelectionRules& rules) {
  const int64_t more_bytes = c.device_bytes - best.device_bytes;
  std::string memory = more_bytes > 0 ? format_bytes(more_bytes) + " more memory" : "as much memory";
  const double ratio = c.tokens_per_s_per_gpu / best.tokens_per_s_per_gpu;
  if (goal == Goal::kMinMemory) return fmt::format("{:.2f}× tokens/s, {}", ratio, memory);
  if (ratio < 1 - kTimeTie || !simpler(best, c, rules)) return fmt::format("{:.2f}× tokens/s", ratio);
  const Choice &x = c.choice, &y = best.choice;
  const bool shards_more = x.sharding != y.sharding || x.reshard_after_forward != y.reshard_after_forward;
  const std::string clause = num_axes(x, rules) != num_axes(y, rules)               ? "more axes"
                             : shards_more                                          ? "more sharding"
                             : !rules.hybrid_is_an_axis && x.dp_shard != y.dp_shard ? "one mesh more"
                             : x.recompute != y.recompute                           ? "more recompute"
                             : more_bytes > 0                                       ? memory
                                                                                    : "a larger micro-batch";
  return fmt::format("{:.2f}×, {}", ratio, clause);
}

Alternative alternative(const Candidate& c, std::string summary, std::string why) {
  return {std::move(summary), c.verdict, c.device_bytes, c.fit_probability, c.step_s, std::move(why)};
}

// Why a plan that does not fit as well as the answer lost.
std::string short_of(const Candidate& c, const Candidate& best, int64_t capacity) {
  if (c.verdict == Verdict::kTight)
    return fmt::format("{:.2f}×, {}: {}", c.tokens_per_s_per_gpu / best.tokens_per_s_per_gpu,
                       verdict_words(c.verdict, c.fit_probability), format_bytes(c.device_bytes));
  const bool is_bound = !c.simulated;
  return fmt::format("does not fit by {}{}", is_bound ? "≥ " : "", format_bytes(c.device_bytes - capacity));
}

// Faster ones that do not fit, then the next best.
std::vector<Alternative> next_best(const Problem& problem, const SearchResult& result, const SelectionRules& rules) {
  const int every_k = problem.recompute_every_k;
  std::vector<Alternative> out;
  for (const Candidate& c : result.faster)
    out.push_back(alternative(c, summary(c.choice, every_k), short_of(c, result.answer(), problem.base.hardware.memory_bytes)));
  for (size_t i = 1; i < result.best.size(); ++i) {
    const Candidate& c = result.best[i];
    out.push_back(alternative(c, summary(c.choice, every_k), why_not(c, result.best.front(), problem.goal, rules)));
  }
  return out;
}

class BestOfEachKind {
 public:
  BestOfEachKind(const Problem& problem, const SearchResult& result, const SelectionRules& rules)
      : p_(problem), result_(result), rules_(rules), best_(result.answer()) {}

  std::vector<Alternative> run() const {
    std::map<Kind, const Candidate*> leaders;
    for (const Candidate& c : result_.candidates) {
      const bool is_known = c.simulated || c.verdict == Verdict::kDoesNotFit;  // others cannot be the best of their kind
      if (is_known && kind_of(c.choice) != kind_of(best_.choice)) lead(leaders, kind_of(c.choice), c);
    }
    // One line per sharding and mesh kind, and one per recompute policy of the winner's: the rest differ in nothing new.
    std::map<Kind, const Candidate*> shown;
    for (const auto& [kind, c] : leaders) {
      const auto [sharding, hybrid, recompute] = kind;
      const bool same_sharding = sharding == best_.choice.sharding && hybrid == is_hybrid(best_.choice);
      lead(shown, same_sharding ? kind : Kind{sharding, hybrid, -1}, *c);
    }
    std::vector<const Candidate*> order;
    for (const auto& [kind, c] : shown) order.push_back(c);
    std::stable_sort(order.begin(), order.end(), [&](const Candidate* a, const Candidate* b) { return better(*a, *b); });
    std::vector<Alternative> out;
    for (const Candidate* c : order) {
      const bool whole = c->simulated || c->finished || same_name(*c);
      out.push_back(alternative(*c, whole ? summary(c->choice, p_.recompute_every_k) : sharding_summary(c->choice), why(*c)));
    }
    return out;
  }

 private:
  bool same_name(const Candidate& c) const { return sharding_summary(c.choice) == sharding_summary(best_.choice); }

  bool better(const Candidate& a, const Candidate& b) const {
    const bool fits_a = a.verdict != Verdict::kDoesNotFit, fits_b = b.verdict != Verdict::kDoesNotFit;
    if (fits_a != fits_b) return fits_a;
    if (!fits_a || p_.goal == Goal::kMinMemory) return a.device_bytes < b.device_bytes;
    if (a.verdict != b.verdict) return a.verdict == Verdict::kFits;
    if (a.verdict == Verdict::kTight && is_likelier(a, b) != is_likelier(b, a)) return is_likelier(a, b);
    return a.tokens_per_s_per_gpu > b.tokens_per_s_per_gpu;
  }

  void lead(std::map<Kind, const Candidate*>& leaders, const Kind& kind, const Candidate& c) const {
    const auto [it, fresh] = leaders.try_emplace(kind, &c);
    if (!fresh && better(c, *it->second)) it->second = &c;
  }

  std::string why(const Candidate& c) const {
    if (c.verdict == Verdict::kDoesNotFit || (c.verdict == Verdict::kTight && best_.verdict == Verdict::kFits))
      return short_of(c, best_, p_.base.hardware.memory_bytes);
    return best_.verdict == Verdict::kDoesNotFit ? "" : why_not(c, best_, p_.goal, rules_);
  }

  const Problem& p_;
  const SearchResult& result_;
  const SelectionRules& rules_;
  const Candidate& best_;
};

// The rules by which plans lost that are faster.
void say_rules(const SelectionRules& rules, Plan& plan) {
  bool by_simplicity = false, by_verdict = false;
  for (const Alternative& a : plan.alternatives) {
    if (a.step_s <= 0 || a.step_s > plan.time.step_s * 0.995) continue;
    by_simplicity = by_simplicity || a.verdict == plan.verdict;
    by_verdict = by_verdict || (a.verdict == Verdict::kTight && plan.verdict == Verdict::kFits);
  }
  if (by_simplicity)
    plan.reasons.push_back(fmt::format("runners-up that are a little faster lost: of plans within {:.0f} % the simplest wins",
                                       100 * std::max(rules.structure_tie, kTimeTie)));
  if (by_verdict) plan.reasons.emplace_back("runners-up that are faster and tight lost: what fits goes before what is tight");
}

// A trainer splits sequences only where it is told to: a plan that does so unasked says what becomes of whole ones.
void say_whole_sequences(const SearchResult& result, const Problem& problem, Plan& plan) {
  if (is_native(plan) || plan.mesh.cp == 1 || plan.verdict == Verdict::kDoesNotFit) return;
  const auto rank = [](const Candidate& c) { return std::tuple(c.verdict, c.device_bytes); };
  const Candidate* whole = nullptr;
  for (const Candidate& c : result.candidates) {
    if (c.choice.cp > 1) continue;
    if (!c.simulated && c.verdict != Verdict::kDoesNotFit) return;  // nobody knows yet
    if (whole == nullptr || rank(c) < rank(*whole)) whole = &c;
  }
  if (whole == nullptr || whole->verdict <= plan.verdict) return;
  const int64_t bytes = whole->device_bytes, capacity = problem.base.hardware.memory_bytes;
  const std::string why = whole->verdict == Verdict::kTight
                              ? fmt::format("are {}: {}", verdict_words(whole->verdict, whole->fit_probability), format_bytes(bytes))
                          : bytes > capacity
                              ? fmt::format("do not fit by {}{}", whole->simulated ? "" : "≥ ", format_bytes(bytes - capacity))
                              : "do not fit";
  plan.reasons.push_back(
      fmt::format("sequences are split over {} GPUs, which {} does when it is told to (--cp {}): whole ones (--cp 1) {}", plan.mesh.cp,
                  problem.trainer.label, plan.mesh.cp, why));
}

struct FoundOnNodes {
  int nodes = 0;
  SearchResult result;
  int too_few = 0;  // the largest number of nodes on which nothing is an answer; 0: there is none
};

// The fewest nodes on which there is an answer. There is none on any: the first on which something is tight, else the last.
std::optional<FoundOnNodes> fewest_nodes(const Problem& problem, Predictor& predictor, Diagnostics& why, Shortfall shortfall) {
  const SelectionRules& rules = predictor.rules();
  SearchWish wish;
  wish.wanted = shortfall == Shortfall::kSkip || rules.best_of_each_kind ? 1 : kListedChoices;
  wish.worst = Verdict::kFits;
  wish.nearest = false;
  std::vector<int> legal;
  for (const int nodes : problem.node_counts) {
    if (nodes != problem.node_counts.front() && more_ranks_than_sequences(problem, nodes)) break;
    SearchResult found = search(problem, nodes, predictor, wish);
    if (found.candidates.empty()) {
      if (why.empty()) why = std::move(found.why);
      continue;
    }
    if (!found.best.empty()) return FoundOnNodes{nodes, std::move(found), legal.empty() ? 0 : legal.back()};
    legal.push_back(nodes);
  }
  if (legal.empty() || shortfall == Shortfall::kSkip) return std::nullopt;
  wish.worst = Verdict::kTight;
  // None fits for sure: the fewest that are likely to, or else those that are likeliest.
  constexpr double kLikely = 0.8;
  std::optional<FoundOnNodes> tight;
  for (const int nodes : legal) {
    wish.nearest = nodes == legal.back() && !tight.has_value();
    FoundOnNodes here{nodes, search(problem, nodes, predictor, wish), legal.back()};
    if (here.result.best.empty() && !wish.nearest) continue;
    const auto chance = [](const FoundOnNodes& one) { return one.result.best.empty() ? 0 : one.result.best.front().fit_probability; };
    if (!tight.has_value() || chance(here) > chance(*tight)) tight = std::move(here);
    if (chance(*tight) >= kLikely) break;
  }
  return tight;
}

// On the one number of nodes that there is, with runners-up of every kind.
std::optional<FoundOnNodes> on_nodes(const Problem& problem, Predictor& predictor, Diagnostics& why) {
  const int nodes = problem.node_counts.front();
  FoundOnNodes found{nodes, search(problem, nodes, predictor, {.every_kind = true})};
  if (!found.result.candidates.empty()) return found;
  why = std::move(found.result.why);
  return std::nullopt;
}

}  // namespace

bool is_answer(const Plan& plan) { return plan.verdict == Verdict::kFits; }

std::vector<Alternative> runners_up(const Problem& problem, const SearchResult& result, const SelectionRules& rules) {
  return rules.best_of_each_kind ? BestOfEachKind(problem, result, rules).run() : next_best(problem, result, rules);
}

std::string why_lost(const Problem& problem, const Plan& other, const Plan& best) {
  const auto candidate = [](const Plan& plan) {
    Candidate c;
    c.choice = choice_of(plan);
    c.device_bytes = c.tie_bytes = plan.memory.device_bytes;
    c.step_s = plan.time.step_s;
    c.tokens_per_s_per_gpu = plan.time.tokens_per_s_per_gpu;
    c.verdict = plan.verdict;
    c.fit_probability = plan.memory.fit_probability;
    c.timed = c.simulated = c.finished = true;
    return c;
  };
  const Candidate c = candidate(other), won = candidate(best);
  if (c.verdict == Verdict::kDoesNotFit) return short_of(c, won, best.memory.capacity_bytes);
  if (c.verdict != won.verdict) return short_of(c, won, best.memory.capacity_bytes) + ", and what fits goes first";
  const SelectionRules rules = make_predictor(problem)->rules();
  const bool is_faster = c.tokens_per_s_per_gpu > won.tokens_per_s_per_gpu;
  return why_not(c, won, problem.goal, rules) +
         (is_faster ? fmt::format(": of plans within {:.0f} % the simplest wins", 100 * std::max(rules.structure_tie, kTimeTie)) : "");
}

namespace {

// With what is settled of the loss.
std::optional<Plan> solve_as_it_is(const Problem& problem, Diagnostics& why, Shortfall shortfall) {
  const std::unique_ptr<Predictor> predictor = make_predictor(problem);
  const SelectionRules& rules = predictor->rules();
  const bool every_kind = rules.best_of_each_kind && shortfall == Shortfall::kFind;
  const bool is_one = every_kind && problem.node_counts.size() == 1;
  std::optional<FoundOnNodes> kept = is_one ? on_nodes(problem, *predictor, why) : fewest_nodes(problem, *predictor, why, shortfall);
  if (!kept.has_value()) return std::nullopt;
  why.clear();
  if (every_kind && !is_one)
    kept->result = search(problem, kept->nodes, *predictor, {.every_kind = true});  // the same answer, and its runners-up
  const Candidate& best = kept->result.answer();
  Plan plan = predictor->plan(best);
  if (shortfall == Shortfall::kSkip) return plan;
  plan.alternatives = runners_up(problem, kept->result, rules);
  std::optional<TooFewNodes> too_few;
  if (kept->too_few > 0 && kept->too_few < kept->nodes) {
    too_few = {kept->too_few, 0};
    if (every_kind) too_few->device_bytes = search(problem, kept->too_few, *predictor).answer().device_bytes;
  }
  predictor->explain(best, kept->result.counts, too_few, plan);
  say_rules(rules, plan);
  say_whole_sequences(kept->result, problem, plan);
  return plan;
}

}  // namespace

std::optional<Plan> solve(const Problem& problem, Diagnostics& why, Shortfall shortfall) {
  std::optional<Plan> plan = solve_as_it_is(problem, why, shortfall);
  if (!problem.may_chunk_loss || (plan.has_value() && is_answer(*plan))) return plan;
  Problem chunked = problem;
  chunked.base.strategy.loss_head = kChunkedLoss;
  Diagnostics unused;
  std::optional<Plan> better = solve_as_it_is(chunked, unused, Shortfall::kSkip);
  if (!better.has_value()) return plan;
  if (shortfall == Shortfall::kFind) better = solve_as_it_is(chunked, unused, shortfall);
  better->reasons.push_back(
      fmt::format("head and loss in {} chunks: with all logits of a micro-batch at once nothing fits for sure", kLossChunks));
  return better;
}

}  // namespace distsetup
