#include "planner/search/selection.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <tuple>

#include "base/check.h"
#include "planner/search/space.h"

namespace distsetup {
namespace {

// What must hold the same for a larger micro-batch to need no less memory.
auto memory_family(const Choice& c) {
  return std::tuple(c.tp, c.pp, c.virtual_stages, c.cp, c.cp_method, c.ep, c.sharding, c.reshard_after_forward, c.dp_shard, c.hpz,
                    c.recompute);
}
// Where more micro-batches than one add up, a rank may hold whole gradients from one to the next, whatever their size (FSDP1 under
// no_sync): the largest micro-batch, which is alone in its step, can need less than a smaller one.
auto growing_family(const Choice& c) { return std::pair(memory_family(c), c.gradient_accumulation > 1); }
using GrowingFamily = decltype(growing_family(Choice{}));

bool at_least(Verdict v, Verdict wanted) { return static_cast<int>(v) <= static_cast<int>(wanted); }

// Smallest first; of equals the one that comes first in the space.
template <class Key>
using Open = std::priority_queue<std::pair<Key, int>, std::vector<std::pair<Key, int>>, std::greater<>>;

class Selection {
 public:
  Selection(const Problem& problem, int nodes, Predictor& predictor, const SearchWish& wish)
      : p_(problem), rules_(predictor.rules()), predictor_(predictor), wish_(wish) {
    predictor_.start(nodes);
    predictor_.seek_answers_alone(!wish.nearest && !wish.every_kind);
    const std::vector<Choice> choices = legal_choices(problem, nodes, &result_.why);
    candidates_.reserve(choices.size());
    for (const Choice& choice : choices) {
      Candidate& c = candidates_.emplace_back();
      c.choice = choice;
      predictor_.bound(c);
      if (c.verdict != Verdict::kDoesNotFit) predictor_.time(c);
    }
  }

  SearchResult run() {
    select();
    for (Candidate& c : result_.faster) finish(c);
    result_.counts = predictor_.counts(candidates_);
    if (result_.smallest.has_value() && !result_.smallest->timed) predictor_.time(*result_.smallest);  // printed, not searched
    result_.candidates = std::move(candidates_);
    return std::move(result_);
  }

  std::vector<Candidate> front() {
    std::vector<Candidate> front;
    int64_t least = INT64_MAX;
    Open<double> open = by_seconds(Verdict::kTight);
    while (!open.empty()) {
      const int i = open.top().second;
      open.pop();
      Candidate& c = at(i);
      if (!c.timed) {
        if (!predictor_.near(c)) simulate(c);
        if (at_least(c.verdict, Verdict::kTight)) open.emplace(c.s_per_token, i);
        continue;
      }
      if (c.device_bytes >= least || (!c.simulated && too_large(c, Verdict::kTight) != nullptr)) continue;
      simulate(c);
      if (c.device_bytes >= least || !reaches(c, Verdict::kTight, Proof::kExact) || c.device_bytes >= least) continue;
      least = c.device_bytes;
      front.push_back(c);
    }
    return front;
  }

 private:
  enum class Proof { kAmple, kExact };

  Candidate& at(int i) { return candidates_[static_cast<size_t>(i)]; }
  bool slower(const Candidate& c, double fastest_s) const { return c.s_per_token > fastest_s * (1 + kTimeTie); }

  void select() {
    if (candidates_.empty()) return;
    double least_s = kAnySpeed;
    for (const Candidate& c : candidates_)
      if (c.verdict != Verdict::kDoesNotFit) least_s = std::min(least_s, c.s_per_token);
    result_.too_slow = least_s < kAnySpeed && least_s > wish_.most_s_per_token;
    if (result_.too_slow) return;
    if (wish_.every_kind) lead_every_kind();
    for (const Verdict wanted : {Verdict::kFits, Verdict::kTight}) {
      if (!at_least(wanted, wish_.worst)) return;
      best_that(wanted);
      if (!result_.best.empty()) return;
    }
    if (!wish_.nearest) return;
    least_host_shortfall();
    if (!result_.smallest.has_value()) least_shortfall();
  }

  void best_that(Verdict wanted) {
    p_.goal == Goal::kMinMemory ? least_memory(wanted) : wanted == Verdict::kFits ? fastest(wanted) : likeliest();
  }

  // --- what is known of a candidate

  void simulate(Candidate& c) {
    if (c.simulated) return;
    predictor_.simulate(c);
    note(c);
  }

  void finish(Candidate& c) {
    if (c.finished) return;
    predictor_.finish(c);
    if (c.verdict == Verdict::kDoesNotFit) note(c);
  }

  // The smallest micro-batch of a family that is no better than tight, and that does not fit.
  struct Failed {
    int64_t tight = INT64_MAX, does_not_fit = INT64_MAX;
    int64_t device_bytes = 0;  // of the first that does not fit
  };
  void note(const Candidate& c) {
    if (c.verdict == Verdict::kFits) return;
    Failed& failed = failed_[growing_family(c.choice)];
    failed.tight = std::min(failed.tight, c.choice.micro_batch);
    if (c.verdict != Verdict::kDoesNotFit) return;
    if (failed.device_bytes == 0) failed.device_bytes = c.device_bytes;
    failed.does_not_fit = std::min(failed.does_not_fit, c.choice.micro_batch);
  }
  // What a smaller micro-batch did not reach, a larger one does not; nullptr: nothing is known.
  const Failed* too_large(const Candidate& c, Verdict wanted) const {
    if (!predictor_.grows_with_micro_batch(c.choice)) return nullptr;
    const auto it = failed_.find(growing_family(c.choice));
    if (it == failed_.end()) return nullptr;
    return c.choice.micro_batch >= (wanted == Verdict::kFits ? it->second.tight : it->second.does_not_fit) ? &it->second : nullptr;
  }

  bool reaches(Candidate& c, Verdict wanted, Proof proof) {
    if (!c.simulated && too_large(c, wanted) != nullptr) return false;
    simulate(c);
    if (!at_least(c.verdict, wanted)) return false;
    if (proof == Proof::kAmple && predictor_.fits_amply(c)) return true;
    finish(c);
    return at_least(c.verdict, wanted);
  }

  // Simulates of every kind all that could be its best: best first, until one that fits is no worse than any bound behind it.
  void lead_every_kind() {
    const bool by_memory = p_.goal == Goal::kMinMemory;
    const auto rank = [&](const Candidate& c) { return by_memory ? static_cast<double>(c.device_bytes) : c.s_per_token; };
    std::map<Kind, std::vector<std::pair<double, int>>> kinds;
    for (size_t i = 0; i < candidates_.size(); ++i)
      if (candidates_[i].verdict != Verdict::kDoesNotFit)
        kinds[kind_of(candidates_[i].choice)].emplace_back(rank(candidates_[i]), static_cast<int>(i));
    for (auto& [kind, entries] : kinds) {
      Open<double> open(std::greater<>(), std::move(entries));
      double best = kAnySpeed;
      for (; !open.empty() && open.top().first <= best;) {
        const int i = open.top().second;
        open.pop();
        Candidate& c = at(i);
        if (const Failed* smaller = too_large(c, Verdict::kTight); smaller != nullptr && !c.simulated) {
          c.device_bytes = std::max(c.device_bytes, smaller->device_bytes);
          c.verdict = Verdict::kDoesNotFit;
          continue;
        }
        if (!by_memory && !c.simulated && predictor_.near(c)) {
          open.emplace(rank(c), i);
          continue;
        }
        simulate(c);
        if (at_least(c.verdict, by_memory ? Verdict::kTight : Verdict::kFits)) best = std::min(best, rank(c));
      }
    }
  }

  // --- the fastest

  Open<double> by_seconds(Verdict wanted) const {
    std::vector<std::pair<double, int>> entries;
    for (size_t i = 0; i < candidates_.size(); ++i)
      if (at_least(candidates_[i].verdict, wanted)) entries.emplace_back(candidates_[i].s_per_token, static_cast<int>(i));
    return Open<double>(std::greater<>(), std::move(entries));
  }

  // Best first: of what may still be fastest, that with the least seconds is looked at, until enough reach `wanted`; then all that may
  // tie with the fastest, so that the simplest of them wins.
  void fastest(Verdict wanted) {
    constexpr size_t kMostTies = 64;  // of those that are finished one by one
    Open<double> open = by_seconds(wanted);
    std::vector<int> found;
    double limit = wish_.every_kind ? kAnySpeed : wish_.most_s_per_token;
    for (; !open.empty() && open.top().first <= limit;) {
      const int i = open.top().second;
      open.pop();
      Candidate& c = at(i);
      if (!c.timed) {
        if (!predictor_.near(c)) simulate(c);
        if (at_least(c.verdict, wanted)) open.emplace(c.s_per_token, i);
        continue;
      }
      const bool in_turn = rules_.finish_in_turn && !found.empty();
      if (!in_turn && !reaches(c, wanted, Proof::kAmple)) {
        if (found.empty() && c.simulated && !rules_.best_of_each_kind) nearly(c);
        continue;
      }
      found.push_back(i);
      if (found.size() >= static_cast<size_t>(wish_.wanted)) limit = at(found.front()).s_per_token * (1 + kTimeTie);
      if (!rules_.finish_in_turn && found.size() > kMostTies) break;
    }
    result_.too_slow = found.empty() && !open.empty();
    if (found.empty()) return;
    order(found, wanted);
    const Proof proof = wish_.estimate ? Proof::kAmple : Proof::kExact;
    for (const int i : found) {
      if (reaches(at(i), wanted, proof)) result_.best.push_back(at(i));
      if (static_cast<int>(result_.best.size()) == wish_.wanted) return;
    }
  }

  // Fastest first, and those that tie with the fastest by how simple they are.
  void order(std::vector<int>& found, Verdict verdict) {
    if (rules_.structure_tie > 0) prefer_fewer_axes(found, verdict);
    const double fastest_s = at(found.front()).s_per_token;
    const int axes = num_axes(at(found.front()).choice, rules_);
    const auto ties = std::find_if(found.begin(), found.end(), [&](int i) {
      return slower(at(i), fastest_s) || (rules_.structure_tie > 0 && num_axes(at(i).choice, rules_) > axes);
    });
    std::stable_sort(found.begin(), ties, [&](int a, int b) { return simpler(at(a), at(b), rules_); });
  }

  // Within structure_tie of the fastest the fewest axes win. `found` is then what has them, fastest first, before what is faster and
  // less simple.
  void prefer_fewer_axes(std::vector<int>& found, Verdict verdict) {
    const double fastest_s = at(found.front()).s_per_token;
    std::vector<std::pair<double, int>> near;
    for (size_t i = 0; i < candidates_.size(); ++i)
      if (candidates_[i].timed && candidates_[i].s_per_token * (1 - rules_.structure_tie) <= fastest_s)
        near.emplace_back(candidates_[i].s_per_token, static_cast<int>(i));
    std::sort(near.begin(), near.end());
    const auto axes_of = [&](int i) { return num_axes(at(i).choice, rules_); };
    const int reached = axes_of(found.front());
    const bool is_fewest = std::all_of(found.begin(), found.end(), [&](int i) { return axes_of(i) >= reached; });
    for (int axes = 0; axes <= reached; ++axes) {
      std::vector<int> simple;
      for (const auto& [seconds, i] : near) {
        if (!simple.empty() && slower(at(i), at(simple.front()).s_per_token)) break;
        if (axes_of(i) == axes && reaches(at(i), verdict, Proof::kExact)) simple.push_back(i);
      }
      if (simple.empty()) continue;
      if (axes == reached && is_fewest) return;
      std::erase_if(found, [&](int i) { return std::find(simple.begin(), simple.end(), i) != simple.end(); });
      found.insert(found.begin(), simple.begin(), simple.end());
      return;
    }
  }

  // Of what is faster and does not fit, the three that miss by least, one per kind of plan.
  void nearly(const Candidate& c) {
    std::vector<Candidate>& misses = result_.faster;
    const auto same = std::find_if(misses.begin(), misses.end(), [&](const Candidate& m) {
      return predictor_.key(m.choice) == predictor_.key(c.choice) || memory_family(m.choice) == memory_family(c.choice);
    });
    if (same != misses.end()) {
      if (c.device_bytes < same->device_bytes) *same = c;
    } else {
      misses.push_back(c);
    }
    std::stable_sort(misses.begin(), misses.end(),
                     [](const Candidate& a, const Candidate& b) { return a.device_bytes < b.device_bytes; });
    if (misses.size() > 3) misses.pop_back();
  }

  // --- the smallest

  // What the host lacks counts as if the device lacked it.
  static int64_t shortfall_key(const Candidate& c) { return c.device_bytes + c.missing_host_bytes; }

  Open<int64_t> by_bytes(Verdict wanted) const {
    std::vector<std::pair<int64_t, int>> entries;
    for (size_t i = 0; i < candidates_.size(); ++i)
      if (at_least(candidates_[i].verdict, wanted)) entries.emplace_back(shortfall_key(candidates_[i]), static_cast<int>(i));
    return Open<int64_t>(std::greater<>(), std::move(entries));
  }

  // Best first: a bound, then simulated bytes, then those that decide.
  void least_memory(Verdict wanted) {
    Open<int64_t> open = by_bytes(wanted);
    while (!open.empty() && static_cast<int>(result_.best.size()) < wish_.wanted) {
      const int i = open.top().second;
      open.pop();
      Candidate& c = at(i);
      if (c.finished) {
        result_.best.push_back(c);
        continue;
      }
      if (!c.simulated && too_large(c, wanted) != nullptr) continue;
      c.simulated ? finish(c) : simulate(c);
      if (at_least(c.verdict, wanted)) open.emplace(c.device_bytes, i);
    }
  }

  // Nothing fits for sure: the likeliest to, which need not be what needs least, since some memory is known better than other; of
  // those that are as likely the fastest. What is simulated has a probability that its replay does not raise.
  void likeliest() {
    Open<int64_t> open = by_bytes(Verdict::kTight);
    std::vector<int> found;
    int likeliest = -1;
    bool some_too_slow = false;
    while (!open.empty()) {
      const int i = open.top().second;
      open.pop();
      Candidate& c = at(i);
      if (c.simulated && likeliest >= 0 && is_likelier(at(likeliest), c)) continue;
      if (c.finished) {
        if (!c.timed) predictor_.time(c);
        some_too_slow = some_too_slow || c.s_per_token > wish_.most_s_per_token;
        if (c.s_per_token > wish_.most_s_per_token) continue;
        found.push_back(i);
        if (likeliest < 0 || c.fit_probability > at(likeliest).fit_probability) likeliest = i;
        continue;
      }
      if (!c.simulated && too_large(c, Verdict::kTight) != nullptr) continue;
      c.simulated ? finish(c) : simulate(c);
      if (at_least(c.verdict, Verdict::kTight)) open.emplace(c.device_bytes, i);
    }
    result_.too_slow = found.empty() && some_too_slow;
    std::erase_if(found, [&](int i) { return is_likelier(at(likeliest), at(i)); });
    std::stable_sort(found.begin(), found.end(), [&](int a, int b) { return at(a).s_per_token < at(b).s_per_token; });
    for (const int i : found)
      if (static_cast<int>(result_.best.size()) < wish_.wanted) result_.best.push_back(at(i));
  }

  // Nothing fits for want of host memory alone: the best by the usual rules of those that need least of it, as if it were there.
  void least_host_shortfall() {
    int64_t least = INT64_MAX;
    for (const Candidate& c : candidates_)
      if (c.simulated && c.missing_host_bytes > 0 && c.device_bytes <= p_.base.hardware.memory_bytes)
        least = std::min(least, c.missing_host_bytes);
    if (least == INT64_MAX) return;
    const std::vector<Candidate> judged = candidates_;
    result_.faster.clear();
    failed_.clear();
    predictor_.lend_host(static_cast<int64_t>(static_cast<double>(least) * (1 + kTimeTie)));
    for (Candidate& c : candidates_)
      if (c.missing_host_bytes > 0) predictor_.simulate(c);
    best_that(Verdict::kFits);
    if (result_.best.empty()) best_that(Verdict::kTight);
    predictor_.lend_host(0);
    if (!result_.best.empty()) result_.smallest = result_.best.front();
    result_.best.clear();
    result_.faster.clear();
    candidates_ = judged;
    if (!result_.smallest.has_value()) return;
    result_.smallest->fit_probability = 0;
    result_.smallest->verdict = Verdict::kDoesNotFit;
  }

  // Nothing fits: over everything legal, what bounds rule out included, since it may miss by less.
  void least_shortfall() {
    result_.faster.clear();
    Open<int64_t> open = by_bytes(Verdict::kDoesNotFit);
    while (!open.empty()) {
      const int i = open.top().second;
      open.pop();
      Candidate& c = at(i);
      if (c.simulated && (c.finished || c.verdict == Verdict::kDoesNotFit)) {
        finish(c);
        result_.smallest = c;
        return;
      }
      c.simulated ? finish(c) : simulate(c);
      open.emplace(shortfall_key(c), i);
    }
    CHECK(false, "something was legal");
  }

  const Problem& p_;
  const SelectionRules& rules_;
  Predictor& predictor_;
  const SearchWish wish_;
  std::vector<Candidate> candidates_;
  std::map<GrowingFamily, Failed> failed_;
  SearchResult result_;
};

}  // namespace

SearchResult search(const Problem& problem, int nodes, Predictor& predictor, const SearchWish& wish) {
  return Selection(problem, nodes, predictor, wish).run();
}

std::vector<Candidate> pareto_front(const Problem& problem, int nodes, Predictor& predictor) {
  return Selection(problem, nodes, predictor, {}).front();
}

}  // namespace distsetup
