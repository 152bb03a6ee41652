#include "planner/trainer_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/quantity.h"
#include "planner/frameworks/frameworks.h"
#include "planner/hardware_facts.h"
#include "planner/search.h"
#include "planner/time/constants.h"
#include "planner/uncertainty.h"

namespace distsetup {
namespace {

// What else must hold the same for a larger micro-batch to need no less memory.
auto memory_family(const TrainerChoice& c) {
  return std::tuple(c.tp, c.pp, c.virtual_stages, c.cp, static_cast<int>(c.cp_method), c.ep, static_cast<int>(c.rest.sharding),
                    c.rest.reshard_after_forward, c.rest.dp_shard, c.hpz, static_cast<int>(c.rest.recompute));
}

int num_axes(const TrainerChoice& x) {
  return (x.tp > 1) + (x.pp > 1) + (x.cp > 1) + (x.ep > 1) + (x.virtual_stages > 1) + (x.hpz > 1) +
         (x.rest.sharding != Sharding::kDdp && x.rest.dp_replicate > 1);
}

// What the choice costs the reader: fewer axes first, then less sharding, less recomputation, less memory.
auto simplicity(const TrainerCandidate& c) {
  const TrainerChoice& x = c.choice;
  return std::tuple(num_axes(x), static_cast<int>(x.rest.sharding),
                    x.rest.recompute == Recompute::kFull ? 9 : static_cast<int>(x.rest.recompute), c.device_bytes, x.rest.micro_batch);
}

class TrainerSelection {
 public:
  TrainerSelection(const Problem& problem, int nodes, SearchDepth depth) : p_(problem), nodes_(nodes), depth_(depth) {}

  TrainerSearchResult run(int wanted) {
    enumerate();
    if (candidates_.empty() && counts_.legal == 0) return finish();
    for (const Verdict verdict : {Verdict::kFits, Verdict::kTight}) {
      collect(wanted, verdict);
      if (!result_.best.empty()) return finish();
    }
    smallest();
    return finish();
  }

  std::vector<TrainerCandidate> front() {
    enumerate();
    std::vector<TrainerCandidate> front;
    int64_t least = INT64_MAX;
    for (TrainerCandidate& c : candidates_) {
      if (c.device_bytes >= least || too_large(c)) continue;
      check(c);
      if (c.verdict == Verdict::kDoesNotFit || c.device_bytes >= least) continue;
      least = c.device_bytes;
      front.push_back(c);
    }
    return front;
  }

 private:
  int64_t capacity() const { return p_.base.hardware.memory_bytes; }

  void enumerate() {
    std::vector<TrainerChoice> choices = legal_trainer_choices(p_, nodes_, &result_.why);
    counts_.legal = static_cast<int64_t>(choices.size());
    const int64_t context = p_.base.hardware.context_bytes;
    Setup setup = base_setup(p_, nodes_);
    std::map<Sharding, TimeConstants> constants;  // what else they depend on is no choice
    for (const TrainerChoice& choice : choices) {
      apply(p_, choice, setup);
      const int64_t bound = bound_bytes(setup) + context;
      if (bound > capacity()) {
        ++counts_.bounded_out;
        if (!least_bound_.has_value() || bound < least_bound_->device_bytes) {
          least_bound_ = TrainerCandidate{};
          least_bound_->choice = choice;
          least_bound_->device_bytes = bound;
        }
        continue;
      }
      TrainerCandidate c;
      c.choice = choice;
      c.device_bytes = bound;
      auto of_sharding = constants.find(choice.rest.sharding);
      if (of_sharding == constants.end())
        of_sharding = constants.emplace(choice.rest.sharding, time_constants(setup, embedded_calibration())).first;
      c.time = estimate_time(setup, of_sharding->second);
      ++counts_.timed;
      candidates_.push_back(std::move(c));
    }
    const auto speed = [](const TrainerCandidate& c) { return c.time.tokens_per_s_per_gpu; };
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [&](const TrainerCandidate& a, const TrainerCandidate& b) { return speed(a) > speed(b); });
  }

  bool too_large(const TrainerCandidate& c) const {
    const auto it = failed_.find(memory_family(c.choice));
    return it != failed_.end() && c.choice.rest.micro_batch >= it->second;
  }

  // Fills memory and verdict: simulated bytes first; replayed where they would fit.
  void check(TrainerCandidate& c) {
    const Setup setup = setup_of(p_, nodes_, c.choice);
    if (!c.simulated) {
      c.memory = simulate_memory(setup);
      c.simulated = true;
      ++counts_.simulated;
      c.device_bytes = std::max(c.device_bytes, c.memory.allocated_bytes + p_.base.hardware.context_bytes);
      c.verdict = c.device_bytes > capacity() ? Verdict::kDoesNotFit : Verdict::kFits;  // the replay says more
    }
    if (depth_ == SearchDepth::kReplay && !c.replayed && c.verdict != Verdict::kDoesNotFit) {
      c.memory = replay_memory(setup);
      c.replayed = true;
      ++counts_.replayed;
      c.device_bytes = std::max(c.device_bytes, c.memory.device_bytes);
      c.verdict = replayed_verdict_of(setup, c.memory);
      const int64_t host = p_.base.hardware.host_memory_bytes;
      if (host > 0 && static_cast<double>(c.memory.host_bytes_per_node) > kUsableHostShare * static_cast<double>(host))
        c.verdict = Verdict::kDoesNotFit;
    }
    if (c.verdict == Verdict::kDoesNotFit) {
      const auto [it, fresh] = failed_.try_emplace(memory_family(c.choice), c.choice.rest.micro_batch);
      if (!fresh) it->second = std::min(it->second, c.choice.rest.micro_batch);
    }
  }

  void collect(int wanted, Verdict verdict) {
    if (p_.goal == Goal::kMinMemory) {
      least_memory(wanted, verdict);
      return;
    }
    std::vector<TrainerCandidate> found;
    double fastest = 0;
    for (TrainerCandidate& c : candidates_) {
      const double speed = c.time.tokens_per_s_per_gpu;
      // Ties with the fastest are all looked at, so that the simplest of them wins.
      if (static_cast<int>(found.size()) >= wanted && speed < fastest * (1 - kTimeTie)) break;
      if (!c.simulated && too_large(c)) continue;
      check(c);
      if (static_cast<int>(c.verdict) > static_cast<int>(verdict)) {
        if (found.empty()) nearly(c);
        continue;
      }
      fastest = std::max(fastest, speed);
      found.push_back(c);
      if (found.size() > 64) break;
    }
    if (found.empty()) return;
    simpler(found, fastest, verdict);
    const int axes = num_axes(found.front().choice);
    const auto ties = std::find_if(found.begin(), found.end(), [&](const TrainerCandidate& c) {
      return c.time.tokens_per_s_per_gpu < fastest * (1 - kTimeTie) || num_axes(c.choice) > axes;
    });
    std::stable_sort(found.begin(), ties,
                     [](const TrainerCandidate& a, const TrainerCandidate& b) { return simplicity(a) < simplicity(b); });
    keep_best(std::move(found), wanted);
  }

  void keep_best(std::vector<TrainerCandidate> found, int wanted) {
    if (static_cast<int>(found.size()) > wanted) found.resize(static_cast<size_t>(wanted));
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
        const double speed = c.time.tokens_per_s_per_gpu;
        if (speed < fastest * (1 - kStructureTie) || (best > 0 && speed < best * (1 - kTimeTie))) break;
        if (num_axes(c.choice) != axes || (!c.simulated && too_large(c))) continue;
        check(c);
        if (static_cast<int>(c.verdict) > static_cast<int>(verdict)) continue;
        best = std::max(best, speed);
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
    const auto same = std::find_if(misses.begin(), misses.end(),
                                   [&](const TrainerCandidate& m) { return memory_family(m.choice) == memory_family(c.choice); });
    if (same != misses.end()) {
      if (c.device_bytes < same->device_bytes) *same = c;
    } else {
      misses.push_back(c);
    }
    std::stable_sort(misses.begin(), misses.end(),
                     [](const TrainerCandidate& a, const TrainerCandidate& b) { return a.device_bytes < b.device_bytes; });
    if (misses.size() > 3) misses.pop_back();
  }

  void least_memory(int wanted, Verdict verdict) {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const TrainerCandidate& a, const TrainerCandidate& b) { return a.device_bytes < b.device_bytes; });
    std::vector<TrainerCandidate> found;
    int64_t least = INT64_MAX;
    for (TrainerCandidate& c : candidates_) {
      if (c.device_bytes > least) break;  // bounds ascend
      if (!c.simulated && too_large(c)) continue;
      check(c);
      if (static_cast<int>(c.verdict) > static_cast<int>(verdict)) continue;
      found.push_back(c);
      if (static_cast<int>(found.size()) >= wanted) least = std::min(least, c.device_bytes);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const TrainerCandidate& a, const TrainerCandidate& b) { return a.device_bytes < b.device_bytes; });
    keep_best(std::move(found), wanted);
  }

  void smallest() {
    result_.faster.clear();
    for (TrainerCandidate& c : candidates_) {
      if (result_.smallest.has_value() && c.device_bytes >= result_.smallest->device_bytes) continue;
      if (!c.simulated) check(c);
      if (!result_.smallest.has_value() || c.device_bytes < result_.smallest->device_bytes) result_.smallest = c;
    }
    if (result_.smallest.has_value()) return;
    CHECK(least_bound_.has_value(), "something was legal");
    TrainerCandidate c = *least_bound_;
    const Setup setup = setup_of(p_, nodes_, c.choice);
    c.memory = simulate_memory(setup);
    c.time = estimate_time(setup);
    c.device_bytes = std::max(c.device_bytes, c.memory.allocated_bytes + p_.base.hardware.context_bytes);
    result_.smallest = std::move(c);
  }

  TrainerSearchResult finish() {
    result_.counts = counts_;
    return std::move(result_);
  }

  const Problem& p_;
  const int nodes_;
  const SearchDepth depth_;
  std::vector<TrainerCandidate> candidates_;
  std::optional<TrainerCandidate> least_bound_;
  std::map<decltype(memory_family(TrainerChoice{})), int64_t> failed_;  // the smallest micro-batch that did not fit
  SearchCounts counts_;
  TrainerSearchResult result_;
};

}  // namespace

TrainerSearchResult search_trainer(const Problem& problem, int nodes, int wanted, SearchDepth depth) {
  return TrainerSelection(problem, nodes, depth).run(wanted);
}

std::vector<TrainerCandidate> pareto_front(const Problem& problem, int nodes) {
  return TrainerSelection(problem, nodes, SearchDepth::kReplay).front();
}

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

}  // namespace

std::optional<Plan> solve_trainer(const Problem& problem, Diagnostics& why) {
  constexpr int kShown = 5;
  std::optional<std::pair<int, TrainerSearchResult>> kept;
  int tried_less = 0;
  for (const int nodes : problem.node_counts) {
    if (nodes != problem.node_counts.front() && more_ranks_than_sequences(problem, nodes)) break;
    TrainerSearchResult found = search_trainer(problem, nodes, kShown);
    if (found.counts.legal == 0) {
      if (why.empty()) why = std::move(found.why);
      continue;
    }
    const bool fits = !found.best.empty() && found.best.front().verdict == Verdict::kFits;
    if (!kept.has_value() || fits || kept->second.best.empty()) kept = {nodes, std::move(found)};
    if (fits) break;
    tried_less = nodes;
  }
  if (!kept.has_value()) return std::nullopt;
  why.clear();
  const auto& [nodes, result] = *kept;
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
    const double ratio = c.time.tokens_per_s_per_gpu / result.best.front().time.tokens_per_s_per_gpu;
    const std::string clause = problem.goal == Goal::kMinMemory
                                   ? fmt::format("{} more memory", format_bytes(c.device_bytes - result.best.front().device_bytes))
                               : ratio < 1 - kTimeTie ? fmt::format("{:.2f}× tokens/s", ratio)
                                                      : fmt::format("{:.2f}×, less simple or more memory", ratio);
    plan.alternatives.push_back({summary(c.choice, every_k), c.verdict, c.device_bytes, c.time.step_s, clause});
  }
  plan.reasons.push_back(states_reason(setup_of(problem, nodes, found ? result.best.front().choice : result.smallest->choice)));
  const SearchCounts& n = result.counts;
  plan.reasons.push_back(fmt::format("searched {} combinations: {} ruled out by their states, {} timed, {} simulated, {} replayed",
                                     format_count(n.legal), format_count(n.bounded_out), format_count(n.timed),
                                     format_count(n.simulated), format_count(n.replayed)));
  if (tried_less > 0 && tried_less < nodes)
    plan.reasons.push_back(fmt::format("{} node{} too few", tried_less, tried_less == 1 ? " is" : "s are"));
  const std::string& target = problem.trainer->chosen_for;
  plan.diagnostics.push_back(
      note("DS0604", {},
           fmt::format("planned for {}{}", problem.trainer->facts.label,
                       target.empty() ? ": the bundled trainer does not run this plan"
                                      : ", which target " + target + " is for; --trainer native plans for the bundled one")));
  return plan;
}

}  // namespace distsetup
