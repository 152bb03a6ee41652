#include "planner/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "plan/native_program.h"
#include "planner/resolve/hardware_facts.h"

namespace distsetup {

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

int64_t sequences_per_step(const Problem& p, int64_t ranks) {
  const int64_t micro = std::max<int64_t>(p.micro_batch, 1), accumulation = std::max<int64_t>(p.gradient_accumulation, 1);
  const int64_t unit = ranks * micro * accumulation;
  const bool settled = p.micro_batch > 0 && p.gradient_accumulation > 0;
  if (p.global_batch > 0) return p.global_batch % unit == 0 && (!settled || p.global_batch == unit) ? p.global_batch : 0;
  if (p.global_batch_tokens == 0) return unit;
  const int64_t wished = p.global_batch_tokens / p.base.train.sequence_length;
  const int64_t times = std::max<int64_t>(1, (wished + unit / 2) / unit);
  return settled && times != 1 ? 0 : times * unit;
}

namespace {

// Attention's FLOPs of one forward stay far inside 64 bits.
bool too_long(int64_t micro_batch, int64_t length) {
  return static_cast<double>(micro_batch) * static_cast<double>(length) * static_cast<double>(length) > kMostPairs;
}

std::string batch_rule(const Problem& p, int64_t ranks) {
  const int64_t wished = p.global_batch > 0 ? p.global_batch : p.global_batch_tokens / p.base.train.sequence_length;
  std::string text = fmt::format("global batch {} is not", wished);
  text += p.micro_batch > 0 ? fmt::format(" micro-batch {} ×", p.micro_batch) : " micro-batch ×";
  text += p.gradient_accumulation > 0 ? fmt::format(" accumulation {} ×", p.gradient_accumulation) : " accumulation ×";
  return text + fmt::format(" {} data-parallel ranks", ranks);
}

// dp_shard sizes: parts of a node, or whole nodes. 1 only where there is nothing to split with, or where it is asked for.
std::vector<int> shard_sizes(const Problem& p, int ranks) {
  std::vector<int> sizes;
  for (const int64_t d : divisors(ranks)) {
    const int shard = static_cast<int>(d), per_node = p.base.hardware.gpus_per_node;
    if (p.dp_shard > 0 ? shard != p.dp_shard : (shard == 1 && ranks > 1)) continue;
    if (p.dp_replicate > 0 && ranks / shard != p.dp_replicate) continue;
    if (p.dp_shard == 0 && p.dp_replicate == 0 && per_node % shard != 0 && shard % per_node != 0) continue;
    sizes.push_back(shard);
  }
  return sizes;
}

int recompute_order(Recompute r) {
  return r == Recompute::kEveryK ? 2 : r == Recompute::kFull ? 3 : r == Recompute::kSelective ? 1 : 0;
}

auto tie_key(const Candidate& c) {
  const bool hybrid = c.choice.sharding != Sharding::kDdp && c.choice.dp_replicate > 1;  // another pair of groups for nothing
  return std::tuple(static_cast<int>(c.choice.sharding), hybrid, c.choice.reshard_after_forward, recompute_order(c.choice.recompute),
                    c.live_bytes, c.choice.micro_batch, c.choice.dp_shard);
}

// The cheapest lower bound: states, what forward keeps, context, communicators; compute alone.
void bound_candidate(const Plan& plan, Candidate& c, SimulationCache& cache) {
  const HardwarePlan& h = plan.hardware;
  const bool dpo = plan.train.method == "dpo";
  const StepBound least = dpo ? StepBound{states_bound_bytes(plan), 0} : bound(plan, cache);
  c.device_bytes = least.allocated_bytes + h.context_bytes + communicator_bytes(plan);
  c.least_s_per_token = least.step_s / static_cast<double>(plan.train.global_batch * plan.train.sequence_length) * plan.mesh.world();
  c.verdict = verdict_of(c.device_bytes, h.memory_bytes, h.accelerator);
}

void simulate_candidate(const Problem& problem, int nodes, Candidate& c, SimulationCache& cache) {
  const Plan plan = plan_of(problem, nodes, c.choice, Weight::kLight);
  const Simulation s = simulate(plan, cache);
  c.live_bytes = s.allocated_bytes();
  c.device_bytes = std::max(c.device_bytes, device_bytes(plan, {s.run_bytes}, s.live_peak_bytes, 0));
  c.time = s.time;
  c.verdict = verdict_of(c.device_bytes, plan.hardware.memory_bytes, plan.hardware.accelerator);
  c.simulated = true;
}

void finish_candidate(const Problem& problem, int nodes, Candidate& c) {
  if (c.finished) return;
  Plan plan = plan_of(problem, nodes, c.choice, Weight::kLight);
  finish(plan);
  c.device_bytes = plan.memory.device_bytes;
  c.verdict = plan.verdict;
  c.finished = true;
  c.memory = std::make_shared<const MemoryPlan>(std::move(plan.memory));
}

// Packing and workspace have added at most 2 % to the live bytes of real models: with this much to spare a candidate need not be
// finished to know that it fits. The plan that is chosen is always finished.
constexpr double kAmpleMargin = 1.15;
bool fits_amply(const Candidate& c, int64_t capacity) {
  return c.simulated && static_cast<double>(c.device_bytes) * kAmpleMargin + 256.0 * kMiB <= static_cast<double>(capacity);
}

bool at_least(Verdict v, Verdict wanted) { return static_cast<int>(v) <= static_cast<int>(wanted); }

class Selection {
 public:
  Selection(const Problem& problem, int nodes, SimulationCache& cache, SearchEffort effort, double most_s_per_token,
            std::vector<Candidate>& candidates)
      : problem_(problem), nodes_(nodes), cache_(cache), effort_(effort), most_s_(most_s_per_token), candidates_(candidates) {}

  int run() {
    Plan plan = plan_of(problem_, nodes_, candidates_.front().choice, Weight::kLight);
    for (Candidate& c : candidates_) {
      apply(problem_, c.choice, plan);
      bound_candidate(plan, c, cache_);
    }
    if (problem_.base.train.method == "dpo") return least_memory();
    if (effort_ == SearchEffort::kAll) simulate_all();
    if (problem_.goal == Goal::kMinMemory) {
      if (const int best = smallest_shortfall(); best >= 0 && candidates_[best].verdict != Verdict::kDoesNotFit) return best;
    }
    for (const Verdict wanted : {Verdict::kFits, Verdict::kTight})
      if (const int best = fastest(wanted); best >= 0) return best;
    return effort_ == SearchEffort::kAll ? smallest_shortfall() : -1;
  }

 private:
  int size() const { return static_cast<int>(candidates_.size()); }

  // A larger micro-batch needs no less memory (zero1 excepted: with one micro-batch it keeps no accumulators), so what did not fit
  // with a smaller one bounds it from below.
  void simulate_all() {
    std::map<std::tuple<int, int, bool, int>, int64_t> too_much;
    for (Candidate& c : candidates_) {
      const auto key = std::tuple(static_cast<int>(c.choice.sharding), c.choice.dp_shard, c.choice.reshard_after_forward,
                                  static_cast<int>(c.choice.recompute));
      if (const auto it = too_much.find(key); it != too_much.end() && c.choice.sharding != Sharding::kZero1) {
        c.device_bytes = std::max(c.device_bytes, it->second);
        c.verdict = Verdict::kDoesNotFit;
      }
      if (c.verdict == Verdict::kDoesNotFit) continue;
      simulate_candidate(problem_, nodes_, c, cache_);
      if (c.verdict == Verdict::kDoesNotFit) too_much.try_emplace(key, c.device_bytes);
    }
  }

  enum class Proof { kAmple, kExact };
  bool reaches(int i, Verdict wanted, Proof proof) {
    Candidate& c = candidates_[i];
    if (!c.simulated || !at_least(c.verdict, wanted)) return false;
    if (proof == Proof::kAmple && fits_amply(c, problem_.base.hardware.memory_bytes)) return true;
    finish_candidate(problem_, nodes_, c);
    return at_least(c.verdict, wanted);
  }

  // Seconds per token and GPU: known, or at least.
  double seconds(int i) const {
    const Candidate& c = candidates_[i];
    return c.simulated ? 1 / c.time.tokens_per_s_per_gpu : c.least_s_per_token;
  }

  // Best first: of what may still be fastest, that with the least seconds is simulated, until the least is a plan that reaches
  // `wanted`. Then all that may tie with it.
  int fastest(Verdict wanted) {
    using Entry = std::pair<double, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    for (int i = 0; i < size(); ++i)
      if (at_least(candidates_[i].verdict, wanted)) open.emplace(seconds(i), i);
    std::vector<int> ties;
    double limit = effort_ == SearchEffort::kAll ? kAnySpeed : most_s_;
    bool found = false;
    for (; !open.empty() && open.top().first <= limit;) {
      const int i = open.top().second;
      open.pop();
      Candidate& c = candidates_[i];
      if (!c.simulated) {
        simulate_candidate(problem_, nodes_, c, cache_);
        if (at_least(c.verdict, wanted)) open.emplace(seconds(i), i);
        continue;
      }
      if (!found) {
        if (!reaches(i, wanted, Proof::kAmple)) continue;
        found = true;
        limit = seconds(i) * (1 + kTimeTie);
      }
      ties.push_back(i);
    }
    std::sort(ties.begin(), ties.end());
    std::stable_sort(ties.begin(), ties.end(), [&](int a, int b) { return preferred_among_ties(candidates_[a], candidates_[b]); });
    const Proof proof = effort_ == SearchEffort::kEstimate ? Proof::kAmple : Proof::kExact;
    for (const int i : ties)
      if (reaches(i, wanted, proof)) return i;
    return -1;
  }

  int least_memory() {
    int best = -1;
    for (int i = 0; i < size(); ++i) {
      if (best < 0 || candidates_[i].device_bytes < candidates_[best].device_bytes) best = i;
      if (candidates_[i].verdict == Verdict::kFits) candidates_[i].verdict = Verdict::kTight;  // a bound proves no fit
    }
    return best;
  }

  // Best first: bounds order the candidates, and simulation stops when no bound is below what was found.
  int smallest_shortfall() {
    std::vector<int> order(candidates_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return candidates_[a].device_bytes < candidates_[b].device_bytes; });
    int best = -1;
    for (const int i : order) {
      Candidate& c = candidates_[i];
      if (best >= 0 && c.device_bytes >= candidates_[best].device_bytes) continue;
      if (!c.simulated) simulate_candidate(problem_, nodes_, c, cache_);
      if (best < 0 || c.device_bytes < candidates_[best].device_bytes) best = i;
    }
    if (best >= 0) finish_candidate(problem_, nodes_, candidates_[best]);
    return best;
  }

  const Problem& problem_;
  const int nodes_;
  SimulationCache& cache_;
  const SearchEffort effort_;
  const double most_s_;
  std::vector<Candidate>& candidates_;
};

}  // namespace

bool preferred_among_ties(const Candidate& a, const Candidate& b) { return tie_key(a) < tie_key(b); }

std::vector<Choice> legal_choices(const Problem& p, int nodes, Diagnostics* why) {
  const int ranks = nodes * p.base.hardware.gpus_per_node;
  std::vector<Choice> choices;
  const int64_t sequences = sequences_per_step(p, ranks);
  const auto refuse = [&](const char* code, const Location& at, std::string message, std::string help) {
    if (why != nullptr && choices.empty()) why->push_back(error(code, at, std::move(message), std::move(help)));
  };
  if (sequences == 0) {
    const int64_t unit = ranks * std::max<int64_t>(p.micro_batch, 1) * std::max<int64_t>(p.gradient_accumulation, 1);
    const bool settled = p.micro_batch > 0 && p.gradient_accumulation > 0;
    const int64_t wished = p.global_batch > 0 ? p.global_batch : p.global_batch_tokens / p.base.train.sequence_length;
    const int64_t near = settled ? unit : std::max<int64_t>(1, (wished + unit / 2) / unit) * unit;
    refuse(code::kBatchIndivisible, p.batch_at, batch_rule(p, ranks), fmt::format("--global-batch {}", near));
    return {};
  }
  const int64_t per_rank = sequences / ranks;
  for (const Sharding sharding : p.shardings) {
    const bool ddp = sharding == Sharding::kDdp;
    if (ddp && (p.dp_shard > 1 || (p.dp_replicate > 0 && p.dp_replicate != ranks))) continue;
    if (!ddp && ranks == 1 && p.shardings.size() > 1) continue;  // nothing to split with
    for (const int shard : ddp ? std::vector<int>{1} : shard_sizes(p, ranks)) {
      for (const int reshard : sharding == Sharding::kZero3 ? p.reshard_after_forward : std::vector<int>{1}) {
        for (const int64_t micro : divisors(per_rank)) {
          if (p.micro_batch > 0 && micro != p.micro_batch) continue;
          if (micro > 1 && p.micro_batch == 0 && too_long(micro, p.base.train.sequence_length)) break;
          if (p.gradient_accumulation > 0 && per_rank / micro != p.gradient_accumulation) continue;
          for (const Recompute recompute : p.recomputes)
            choices.push_back({sharding, reshard != 0, ranks / shard, shard, micro, per_rank / micro, recompute});
        }
      }
    }
  }
  refuse(code::kMeshInvalid, p.parallel_at,
         fmt::format("no mesh of {} ranks has dp_replicate {} and dp_shard {}", ranks, p.dp_replicate, p.dp_shard),
         "leave dp_replicate and dp_shard out");
  return choices;
}

Plan plan_of(const Problem& problem, int nodes, const Choice& c, Weight weight) {
  Plan plan;
  if (weight == Weight::kFull) {
    plan = problem.base;
  } else {
    plan.model = problem.base.model;
    plan.hardware = problem.base.hardware;
    plan.precision = problem.base.precision;
    plan.train = problem.base.train;
  }
  plan.hardware.nodes = nodes;
  apply(problem, c, plan);
  return plan;
}

void apply(const Problem& problem, const Choice& c, Plan& plan) {
  plan.mesh = {};
  plan.mesh.dp_replicate = c.dp_replicate;
  plan.mesh.dp_shard = c.dp_shard;
  plan.strategy.sharding = c.sharding;
  plan.strategy.reshard_after_forward = c.reshard_after_forward;
  plan.micro_batch = c.micro_batch;
  plan.gradient_accumulation = c.gradient_accumulation;
  plan.train.global_batch = c.micro_batch * c.gradient_accumulation * c.dp_replicate * c.dp_shard;
  if (plan.recompute.policy != c.recompute) plan.recompute.dropped = dropped_tensors(plan.model, c.recompute);
  plan.recompute.policy = c.recompute;
  plan.recompute.every_k = c.recompute == Recompute::kEveryK ? problem.recompute_every_k : 0;
}

SearchResult search(const Problem& problem, int nodes, SimulationCache& cache, SearchEffort effort, double most_s_per_token) {
  SearchResult result;
  cache.by_step.clear();  // of other meshes
  for (const Choice& choice : legal_choices(problem, nodes, &result.why)) {
    Candidate candidate;
    candidate.choice = choice;
    result.candidates.push_back(std::move(candidate));
  }
  if (!result.candidates.empty()) result.best = Selection(problem, nodes, cache, effort, most_s_per_token, result.candidates).run();
  return result;
}

double least_s_per_token(const Problem& problem, int nodes, SimulationCache& cache) {
  const std::vector<Choice> choices = legal_choices(problem, nodes);
  double least = std::numeric_limits<double>::infinity();
  if (choices.empty()) return least;
  Plan plan = plan_of(problem, nodes, choices.front(), Weight::kLight);
  Candidate c;
  for (const Choice& choice : choices) {
    apply(problem, choice, plan);
    bound_candidate(plan, c, cache);
    if (c.verdict != Verdict::kDoesNotFit) least = std::min(least, c.least_s_per_token);
  }
  return least;
}

}  // namespace distsetup
