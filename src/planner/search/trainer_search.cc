#include "planner/search/trainer_search.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <tuple>

#include "base/check.h"
#include "base/quantity.h"
#include "planner/frameworks/memory.h"
#include "planner/report/uncertainty.h"
#include "planner/resolve/hardware_facts.h"
#include "planner/search/search.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"
#include "planner/time/step.h"

namespace distsetup {
namespace {

// What else must hold the same for a larger micro-batch to need no less memory.
auto memory_family(const TrainerChoice& c) {
  return std::tuple(c.tp, c.pp, c.virtual_stages, c.cp, static_cast<int>(c.cp_method), c.ep, static_cast<int>(c.rest.sharding),
                    c.rest.reshard_after_forward, c.rest.dp_shard, c.hpz, static_cast<int>(c.rest.recompute));
}

using MemoryFamily = decltype(memory_family(TrainerChoice{}));

int num_axes(const TrainerChoice& x) {
  return (x.tp > 1) + (x.pp > 1) + (x.cp > 1) + (x.ep > 1) + (x.virtual_stages > 1) + (x.hpz > 1) +
         (x.rest.sharding != Sharding::kDdp && x.rest.dp_replicate > 1);
}

class TrainerSelection {
 public:
  TrainerSelection(const Problem& problem, int nodes, const SearchWish& wish)
      : p_(problem), nodes_(nodes), wish_(wish), setup_(base_setup(problem, nodes)) {}

  TrainerSearchResult run() {
    enumerate();
    if (candidates_.empty() && counts_.legal == 0) return finish();
    result_.too_slow = !candidates_.empty() && speed(candidates_.front()) < wish_.least_speed;
    if (result_.too_slow) return finish();
    for (const Verdict verdict : {Verdict::kFits, Verdict::kTight}) {
      if (static_cast<int>(verdict) > static_cast<int>(wish_.worst)) return finish();
      collect(verdict);
      if (!result_.best.empty()) return finish();
    }
    if (wish_.nearest) smallest();
    return finish();
  }

  std::vector<TrainerCandidate> front() {
    enumerate();
    std::vector<TrainerCandidate> front;
    int64_t least = INT64_MAX;
    for (TrainerCandidate& c : candidates_) {
      if (c.device_bytes >= least || (!c.simulated && too_large(c, Verdict::kTight))) continue;
      simulate(c);
      if (c.device_bytes >= least || !reaches(c, Verdict::kTight) || c.device_bytes >= least) continue;
      least = c.device_bytes;
      front.push_back(c);
    }
    return front;
  }

 private:
  // What choices with one key share.
  struct Known {
    std::shared_ptr<const MemoryEstimate> simulated, replayed;
    int64_t most_bytes = 0;  // that a run may allocate which fits
    Verdict verdict = Verdict::kDoesNotFit;
  };

  int64_t capacity() const { return p_.base.hardware.memory_bytes; }
  static double speed(const TrainerCandidate& c) { return c.time.tokens_per_s_per_gpu; }

  void enumerate() {
    std::vector<TrainerChoice> choices = legal_trainer_choices(p_, nodes_, &result_.why);
    counts_.legal = static_cast<int64_t>(choices.size());
    const int64_t context = p_.base.hardware.context_bytes;
    std::map<Sharding, TimeConstants> constants;  // what else they depend on is no choice
    for (const TrainerChoice& choice : choices) {
      apply(p_, choice, setup_);
      const int64_t bound = bound_bytes(setup_) + context;
      if (bound > capacity()) {
        ++counts_.bounded_out;
        ruled_out_.emplace_back(bound, choice);
        continue;
      }
      TrainerCandidate c;
      c.choice = choice;
      c.device_bytes = bound;
      auto of_sharding = constants.find(choice.rest.sharding);
      if (of_sharding == constants.end())
        of_sharding = constants.emplace(choice.rest.sharding, time_constants(setup_, embedded_calibration())).first;
      c.time = estimate_time(setup_, of_sharding->second);
      ++counts_.timed;
      candidates_.push_back(std::move(c));
    }
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const TrainerCandidate& a, const TrainerCandidate& b) { return speed(a) > speed(b); });
  }

  // What a smaller micro-batch did not reach, a larger one does not.
  bool too_large(const TrainerCandidate& c, Verdict wanted) const {
    const auto& failed = wanted == Verdict::kFits ? not_fitting_ : failed_;
    const auto it = failed.find(memory_family(c.choice));
    return it != failed.end() && c.choice.rest.micro_batch >= it->second;
  }

  void note(const TrainerCandidate& c, std::map<MemoryFamily, int64_t>& smallest_failed) {
    const auto [it, fresh] = smallest_failed.try_emplace(memory_family(c.choice), c.choice.rest.micro_batch);
    if (!fresh) it->second = std::min(it->second, c.choice.rest.micro_batch);
  }

  // Simulated bytes, and the best verdict that they leave.
  void simulate(TrainerCandidate& c) {
    if (c.simulated) return;
    Known& known = known_[memory_key(p_, c.choice)];
    if (known.simulated == nullptr) {
      apply(p_, c.choice, setup_);
      known.simulated = std::make_shared<const MemoryEstimate>(simulate_memory(setup_));
      known.most_bytes = wish_.depth == SearchDepth::kReplay ? most_that_fits(setup_) : INT64_MAX;
      ++counts_.simulated;
    }
    const int64_t allocated = known.simulated->allocated_bytes;
    c.simulated = true;
    c.device_bytes = std::max(c.device_bytes, allocated + p_.base.hardware.context_bytes);
    c.verdict = c.device_bytes > capacity()    ? Verdict::kDoesNotFit
                : allocated > known.most_bytes ? Verdict::kTight
                                               : Verdict::kFits;  // the replay says more
    if (c.verdict != Verdict::kFits) note(c, not_fitting_);
    if (c.verdict == Verdict::kDoesNotFit) note(c, failed_);
  }

  void replay(TrainerCandidate& c) {
    if (wish_.depth != SearchDepth::kReplay || c.replayed || c.verdict == Verdict::kDoesNotFit) return;
    Known& known = known_[memory_key(p_, c.choice)];
    if (known.replayed == nullptr) {
      apply(p_, c.choice, setup_);
      known.replayed = std::make_shared<const MemoryEstimate>(replay_memory(setup_));
      known.verdict = replayed_verdict_of(setup_, *known.replayed);
      const int64_t host = p_.base.hardware.host_memory_bytes;
      if (host > 0 && static_cast<double>(known.replayed->host_bytes_per_node) > kUsableHostShare * static_cast<double>(host))
        known.verdict = Verdict::kDoesNotFit;
      ++counts_.replayed;
    }
    c.replayed = true;
    c.device_bytes = std::max(c.device_bytes, known.replayed->device_bytes);
    c.verdict = known.verdict;
    if (c.verdict == Verdict::kDoesNotFit) {
      note(c, failed_);
      note(c, not_fitting_);
    }
  }

  bool reaches(TrainerCandidate& c, Verdict wanted) {
    if (!c.simulated && too_large(c, wanted)) return false;
    simulate(c);
    if (static_cast<int>(c.verdict) > static_cast<int>(wanted)) return false;
    replay(c);
    return static_cast<int>(c.verdict) <= static_cast<int>(wanted);
  }

  void collect(Verdict verdict) {
    if (p_.goal == Goal::kMinMemory) {
      least_memory(verdict);
      return;
    }
    std::vector<TrainerCandidate> found;
    double fastest = 0;
    for (TrainerCandidate& c : candidates_) {
      // Ties with the fastest are all looked at, so that the simplest of them wins.
      if (static_cast<int>(found.size()) >= wish_.wanted && speed(c) < fastest * (1 - kTimeTie)) break;
      if (!reaches(c, verdict)) {
        if (found.empty() && c.simulated) nearly(c);
        continue;
      }
      fastest = std::max(fastest, speed(c));
      found.push_back(c);
      if (found.size() > 64) break;
    }
    if (found.empty()) return;
    simpler(found, fastest, verdict);
    const int axes = num_axes(found.front().choice);
    const auto ties = std::find_if(found.begin(), found.end(), [&](const TrainerCandidate& c) {
      return speed(c) < fastest * (1 - kTimeTie) || num_axes(c.choice) > axes;
    });
    std::stable_sort(found.begin(), ties,
                     [](const TrainerCandidate& a, const TrainerCandidate& b) { return simplicity(a) < simplicity(b); });
    keep_best(std::move(found));
  }

  void keep_best(std::vector<TrainerCandidate> found) {
    if (static_cast<int>(found.size()) > wish_.wanted) found.resize(static_cast<size_t>(wish_.wanted));
    result_.best = std::move(found);
  }

  // Errors of plans with other axes are not the same: within kStructureTie of the fastest, the fewest axes win. `found` is then what
  // has them, fastest first, before what is faster and less simple.
  void simpler(std::vector<TrainerCandidate>& found, double& fastest, Verdict verdict) {
    int fewest = num_axes(found.front().choice);
    for (const TrainerCandidate& c : found) fewest = std::min(fewest, num_axes(c.choice));
    const int reached = num_axes(found.front().choice);
    for (int axes = 0; axes <= reached; ++axes) {
      std::vector<TrainerCandidate> simple;
      double best = 0;
      for (TrainerCandidate& c : candidates_) {
        if (speed(c) < fastest * (1 - kStructureTie) || (best > 0 && speed(c) < best * (1 - kTimeTie))) break;
        if (num_axes(c.choice) != axes || !reaches(c, verdict)) continue;
        best = std::max(best, speed(c));
        simple.push_back(c);
      }
      if (simple.empty()) continue;
      if (axes == reached && fewest == reached) return;
      std::erase_if(found, [&](const TrainerCandidate& c) {
        return std::any_of(simple.begin(), simple.end(), [&](const TrainerCandidate& s) { return s.choice == c.choice; });
      });
      found.insert(found.begin(), simple.begin(), simple.end());
      fastest = best;
      return;
    }
  }

  // Of what is faster and does not fit, the three that miss by least, one per kind of plan.
  void nearly(const TrainerCandidate& c) {
    std::vector<TrainerCandidate>& misses = result_.faster;
    const auto same = std::find_if(misses.begin(), misses.end(), [&](const TrainerCandidate& m) {
      return memory_key(p_, m.choice) == memory_key(p_, c.choice) || memory_family(m.choice) == memory_family(c.choice);
    });
    if (same != misses.end()) {
      if (c.device_bytes < same->device_bytes) *same = c;
    } else {
      misses.push_back(c);
    }
    std::stable_sort(misses.begin(), misses.end(),
                     [](const TrainerCandidate& a, const TrainerCandidate& b) { return a.device_bytes < b.device_bytes; });
    if (misses.size() > 3) misses.pop_back();
  }

  // Bytes that a candidate needs at least, smallest first; of equals the faster one.
  using Open = std::priority_queue<std::pair<int64_t, size_t>, std::vector<std::pair<int64_t, size_t>>, std::greater<>>;

  // Best first: a bound, then simulated bytes, then replayed ones.
  void least_memory(Verdict verdict) {
    Open open;
    for (size_t i = 0; i < candidates_.size(); ++i) open.emplace(candidates_[i].device_bytes, i);
    std::vector<TrainerCandidate> found;
    while (!open.empty() && static_cast<int>(found.size()) < wish_.wanted) {
      const size_t i = open.top().second;
      open.pop();
      TrainerCandidate& c = candidates_[i];
      if (c.simulated && (c.replayed || wish_.depth != SearchDepth::kReplay)) {
        found.push_back(c);
        continue;
      }
      if (!c.simulated && too_large(c, verdict)) continue;
      c.simulated ? replay(c) : simulate(c);
      if (static_cast<int>(c.verdict) <= static_cast<int>(verdict)) open.emplace(c.device_bytes, i);
    }
    keep_best(std::move(found));
  }

  // Nothing fits: best first over everything legal, what states rule out included, since it may miss by less.
  void smallest() {
    result_.faster.clear();
    for (const auto& [bound, choice] : ruled_out_) {
      TrainerCandidate c;
      c.choice = choice;
      c.device_bytes = bound;
      candidates_.push_back(std::move(c));
    }
    Open open;
    for (size_t i = 0; i < candidates_.size(); ++i) open.emplace(candidates_[i].device_bytes, i);
    while (!open.empty()) {
      const size_t i = open.top().second;
      open.pop();
      TrainerCandidate& c = candidates_[i];
      const bool known = c.simulated && (c.replayed || c.verdict == Verdict::kDoesNotFit || wish_.depth != SearchDepth::kReplay);
      if (known) {
        result_.smallest = c;
        break;
      }
      c.simulated ? replay(c) : simulate(c);
      open.emplace(c.device_bytes, i);
    }
    CHECK(result_.smallest.has_value(), "something was legal");
    if (result_.smallest->time.step_s == 0) result_.smallest->time = estimate_time(setup_of(p_, nodes_, result_.smallest->choice));
  }

  void complete(TrainerCandidate& c) {
    if (c.verdict != Verdict::kDoesNotFit) replay(c);
    const Known& known = known_[memory_key(p_, c.choice)];
    c.memory = c.replayed ? *known.replayed : *known.simulated;
  }

  TrainerSearchResult finish() {
    for (TrainerCandidate& c : result_.best) complete(c);
    for (TrainerCandidate& c : result_.faster) complete(c);
    if (result_.smallest.has_value()) complete(*result_.smallest);
    result_.counts = counts_;
    return std::move(result_);
  }

  const Problem& p_;
  const int nodes_;
  const SearchWish wish_;
  Setup setup_;  // the problem's; a choice is applied to it when it is looked at
  std::vector<TrainerCandidate> candidates_;
  std::vector<std::pair<int64_t, TrainerChoice>> ruled_out_;  // by their states: bound and choice
  std::map<MemoryKey, Known> known_;
  std::map<MemoryFamily, int64_t> failed_, not_fitting_;  // the smallest micro-batch that does not fit, and that is tight at best
  SearchCounts counts_;
  TrainerSearchResult result_;
};

}  // namespace

std::tuple<int, int, int, int64_t, int64_t> simplicity(const TrainerCandidate& c) {
  const TrainerChoice& x = c.choice;
  return {num_axes(x), static_cast<int>(x.rest.sharding),
          x.rest.recompute == Recompute::kFull ? 9 : static_cast<int>(x.rest.recompute), c.device_bytes, x.rest.micro_batch};
}

TrainerSearchResult search_trainer(const Problem& problem, int nodes, const SearchWish& wish) {
  return TrainerSelection(problem, nodes, wish).run();
}

std::vector<TrainerCandidate> pareto_front(const Problem& problem, int nodes) { return TrainerSelection(problem, nodes, {}).front(); }

// What the memory models do not read stands at one value: FSDP's pipelines (torchtitan) keep as many micro-batches for any number of
// chunks, and no model but Megatron's tells methods of context parallelism apart.
MemoryKey memory_key(const Problem& p, const TrainerChoice& c) {
  const TrainerProblem& t = *p.trainer;
  const bool fsdp = !t.base.traits().memory_reads_schedule;
  const bool lengths = t.base.sample_lengths.mean > 0;
  // FSDP: whether there is a second micro-batch, and how many a pipeline has in flight.
  const int64_t accumulation = fsdp && !lengths && c.rest.gradient_accumulation > 1
                                   ? std::max<int64_t>(2, std::min<int64_t>(c.pp, c.rest.gradient_accumulation))
                                   : c.rest.gradient_accumulation;
  return {c.tp,
          c.pp,
          c.cp,
          c.ep,
          c.hpz,
          fsdp ? 1 : c.virtual_stages,
          fsdp ? 0 : static_cast<int>(c.cp_method),
          static_cast<int>(c.rest.sharding),
          c.rest.reshard_after_forward,
          c.rest.dp_replicate,
          c.rest.dp_shard,
          c.rest.micro_batch,
          accumulation,
          static_cast<int>(c.rest.recompute)};
}

int64_t most_that_fits(const Setup& s) {
  constexpr double kProbe = 1024.0 * 1024 * 1024, kLevel = 0.99;
  const auto usable = static_cast<double>(s.gpu.usable_memory_bytes), context = static_cast<double>(s.gpu.context_bytes);
  // Device bytes, never less than what is allocated and the context, at their upper end.
  const double offset = interval_of(s, Predicted::kDevice, 0, kLevel).high;
  const double slope = (interval_of(s, Predicted::kDevice, kProbe, kLevel).high - offset) / kProbe;
  double most = std::min(usable, (usable - offset) / slope) - context;
  // Or what comes through on a GPU that is smaller by the upper end of what is allocated.
  if (is_replayed_when_tight(s))
    most = std::max(most, usable * std::min(1.0, kProbe / interval_of(s, Predicted::kAllocated, kProbe, kLevel).high) - context);
  return static_cast<int64_t>(most);
}

}  // namespace distsetup
