// search against brute force, simulate against the expanded schedule, and what more memory or another order may not change.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <utility>

#include "base/digest.h"
#include "base/json.h"
#include "base/value_yaml.h"
#include "model/presets.h"
#include "plan/expand.h"
#include "plan/plan_json.h"
#include "planner/native/simulate.h"
#include "planner/resolve/resolve.h"
#include "planner/search/choice.h"
#include "planner/search/make_plan.h"
#include "planner/search/selection.h"
#include "planner/search/space.h"
#include "support/random_plan.h"
#include "support/seed.h"

using namespace distsetup;

namespace {

RatesPlan rates_at(double flops_per_s, double bytes_per_s) {
  RatesPlan r;
  r.num_sm = 20;
  r.gemm_flops_per_s = 0.7 * flops_per_s;
  r.gemm_k_half = 64;
  r.gemm_misaligned_share = 0.2;
  r.kernel_s = 4e-6;
  r.attention_forward_flops_per_s = 0.4 * flops_per_s;
  r.attention_backward_flops_per_s = 0.3 * flops_per_s;
  r.attention_half_positions = 100;
  r.attention_small_head = 0.9;
  r.gemm_bytes_per_s = r.elementwise_bytes_per_s = r.optimizer_bytes_per_s = 0.8 * bytes_per_s;
  r.loss_bytes_per_logit = 12;
  r.contention = 0.1;
  r.straggler = 0.005;
  return r;
}

// A problem on a made-up GPU whose memory is near what the plans need.
Problem random_problem(std::mt19937_64& random) {
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  static const Presets facts = *load_presets();
  Problem p;
  p.trainer = *find_trainer(facts, kNative);
  p.setup = p.trainer.defaults;
  Geometry g = tiny_geometry(pick(1, 3));
  g.hidden = 8 * pick(2, 40);
  g.feed_forward = 8 * pick(2, 100);
  g.tied_embeddings = pick(0, 1) == 1;
  p.base.model = g;
  HardwarePlan& h = p.base.hardware;
  h.gpu = h.gpu_name = "made up";
  h.accelerator = pick(0, 1) == 0 ? Accelerator::kCpu : Accelerator::kCuda;
  h.gpus_per_node = static_cast<int>(pick(1, 4));
  h.peak_flops_per_s = 1e12;
  h.gemm_efficiency = 0.6;
  h.attention_efficiency = 0.3;
  h.memory_bytes_per_s = 1e11;
  if (h.accelerator == Accelerator::kCuda) h.rates = rates_at(1e12, 1e11);
  h.link_bytes_per_s = 1e9 * static_cast<double>(pick(1, 100));
  h.network_bytes_per_s = 1e8 * static_cast<double>(pick(1, 100));
  h.link_latency_s = 3e-6;
  h.network_latency_s = 1e-5;
  h.context_bytes = h.accelerator == Accelerator::kCpu ? 0 : 1 << 20;
  p.base.precision.compute = pick(0, 1) == 0 ? Dtype::kF32 : Dtype::kBf16;
  p.base.train.sequence_length = 16 * pick(1, 8);
  p.base.train.optimizer = std::array{"adamw", "adafactor", "muon"}[static_cast<size_t>(pick(0, 2))];
  if (pick(0, 3) == 0) {
    p.base.train.method = kDpo;
    p.base.train.preference.reference = pick(0, 1) == 0 ? "sharded" : "cached";
  }
  if (pick(0, 3) == 0) {
    p.base.train.finetune = "lora";
    p.base.train.lora_rank = pick(1, 8);
    p.base.train.lora_alpha = 8;
    p.base.train.lora_targets = {pick(0, 1) == 0 ? "q_proj" : "all-linear"};
  }
  p.node_counts = {static_cast<int>(pick(1, 2))};
  p.shardings = {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3};
  p.reshard_after_forward = {1, 0};
  p.recomputes = {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull};
  p.global_batch = h.gpus_per_node * p.node_counts.front() * pick(1, 6);
  return p;
}

// Memory at which some choices fit and some do not.
void set_memory(Problem& p, std::mt19937_64& random) {
  int64_t least = INT64_MAX, most = 0;
  for (const Choice& c : legal_choices(p, p.node_counts.front())) {
    Plan plan = plan_of(p, p.node_counts.front(), c);
    finish(plan);
    least = std::min(least, plan.memory.device_bytes);
    most = std::max(most, plan.memory.device_bytes);
  }
  p.base.hardware.memory_bytes = std::uniform_int_distribution<int64_t>(least - least / 20, most + most / 10)(random);
}

// Of what is tight: the fastest of those that are as likely to fit as the one that needs least.
int likeliest_of(const std::vector<Candidate>& all) {
  std::vector<int> tight;
  for (int i = 0; i < static_cast<int>(all.size()); ++i)
    if (all[i].verdict == Verdict::kTight) tight.push_back(i);
  std::stable_sort(tight.begin(), tight.end(), [&](int a, int b) { return all[a].device_bytes < all[b].device_bytes; });
  int best = -1;
  for (const int i : tight) {
    if (is_likelier(all[tight.front()], all[i])) break;
    if (best < 0 || all[i].tokens_per_s_per_gpu > all[best].tokens_per_s_per_gpu) best = i;
  }
  return best;
}

// The rule of choice, applied to every plan finished.
int brute_force(const Problem& p, std::vector<Candidate>& all) {
  const SelectionRules rules = make_predictor(p)->rules();
  for (const Choice& choice : legal_choices(p, p.node_counts.front())) {
    Plan plan = plan_of(p, p.node_counts.front(), choice);
    const Simulation s = simulate(plan);
    finish(plan);
    Candidate c;
    c.choice = choice;
    c.tie_bytes = s.allocated_bytes();
    c.device_bytes = plan.memory.device_bytes;
    c.fit_probability = plan.memory.fit_probability;
    c.verdict = plan.verdict;
    c.tokens_per_s_per_gpu = plan.time.tokens_per_s_per_gpu;
    all.push_back(std::move(c));
  }
  double fastest = 0;
  for (const Candidate& c : all)
    if (c.verdict == Verdict::kFits) fastest = std::max(fastest, c.tokens_per_s_per_gpu);
  int best = -1;
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    if (all[i].verdict != Verdict::kFits || 1 / all[i].tokens_per_s_per_gpu > (1 / fastest) * (1 + kTimeTie)) continue;
    if (best < 0 || simpler(all[i], all[best], rules)) best = i;
  }
  return best >= 0 ? best : likeliest_of(all);
}

}  // namespace

TEST_CASE("simulate's live peak is the expanded schedule's, to the byte") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 300; ++i) {
    const Geometry g = random_geometry(random);
    Plan plan = make_test_plan(g, random_choice(random), kAnyCut);
    plan.hardware.peak_flops_per_s = plan.hardware.memory_bytes_per_s = plan.hardware.link_bytes_per_s =
        plan.hardware.network_bytes_per_s = 1e12;
    plan.hardware.gemm_efficiency = plan.hardware.attention_efficiency = 1;
    if (has_error(validate(plan))) continue;
    INFO("plan " << i << ": " << summary(plan));
    int64_t run = 0, live = 0;  // of the stage that takes most
    for (int stage = 0; stage < plan.mesh.pp; ++stage) {
      const Schedule expanded = compile_expanded(plan, Phase::kStep, stage);
      if (run_bytes(expanded) + expanded.live_peak_bytes > run + live) run = run_bytes(expanded), live = expanded.live_peak_bytes;
    }
    const Simulation s = simulate(plan);
    REQUIRE(s.live_peak_bytes == live);
    REQUIRE(s.run_bytes == run);
    Plan finished = plan;
    finish(finished);
    int64_t sum = 0;
    for (const MemoryTerm& t : finished.memory.terms) {
      sum += t.bytes_at_peak;
      CHECK(t.bytes_at_peak >= 0);
      CHECK(t.bytes_max >= t.bytes_at_peak);
    }
    REQUIRE(sum == finished.memory.peak_allocated_bytes);
    REQUIRE(s.allocated_bytes() <= finished.memory.peak_allocated_bytes);
    REQUIRE(s.allocated_bytes() >= states_bound_bytes(plan));
    REQUIRE(s.time.step_s > 0);
    REQUIRE(s.time.step_s == finished.time.step_s);
  }
}

TEST_CASE("bounds of bytes and seconds are never above the simulation on 10000 plans of all shardings") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 3);
  int plans = 0;
  while (plans < 10'000) {
    Plan plan = make_test_plan(random_geometry(random), random_choice(random), 1 + static_cast<int64_t>(random() % 40));
    if (random() % 2 == 0) plan.train.preference.reference = "sharded";  // read where pairs are learned from
    if (has_error(validate(plan))) continue;
    ++plans;
    plan.hardware.link_bytes_per_s = plan.hardware.network_bytes_per_s = 1e10;
    if (random() % 2 == 0) {
      plan.hardware.accelerator = Accelerator::kCuda;
      plan.hardware.rates = rates_at(1e12, 1e11);
    }
    if (has_error(validate(plan))) continue;  // which a GPU has no kernel for
    plan.hardware.peak_flops_per_s = plan.hardware.memory_bytes_per_s = 1e11;
    plan.hardware.gemm_efficiency = plan.hardware.attention_efficiency = 0.5;
    SimulationCache cache;
    const Simulation s = simulate(plan, cache);
    const StepBound least = bound(plan, cache);
    INFO("plan " << plans << ": " << summary(plan));
    REQUIRE(states_bound_bytes(plan) <= least.allocated_bytes);
    REQUIRE(least.allocated_bytes <= s.allocated_bytes());
    REQUIRE(least.step_s > 0);
    REQUIRE(least.step_s <= s.time.step_s);
    REQUIRE(std::isfinite(s.time.step_s));
    REQUIRE(s.time.step_s > 0);
  }
}

TEST_CASE("what a search has simulated before changes nothing in a simulation") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 4);
  for (int i = 0; i < 20; ++i) {
    Geometry g = random_geometry(random);
    g.num_layers = 12;  // enough for every pipeline: the candidates of a search have one model
    const Dtype compute = random() % 2 == 0 ? Dtype::kBf16 : Dtype::kF32;
    const bool pairs = random() % 4 == 0;
    const std::string optimizer = std::array{"adamw", "adafactor", "muon"}[random() % 3];
    SimulationCache cache;
    for (int j = 0; j < 20; ++j) {
      PlanChoice choice = random_choice(random);
      choice.compute = compute;
      choice.pairs = pairs;
      choice.optimizer = optimizer;
      Plan plan = make_test_plan(g, choice, 24);
      if (has_error(validate(plan))) continue;
      plan.hardware.accelerator = Accelerator::kCuda;
      plan.hardware.gpus_per_node = 2;
      plan.hardware.rates = rates_at(1e12, 1e11);
      plan.hardware.peak_flops_per_s = plan.hardware.memory_bytes_per_s = plan.hardware.link_bytes_per_s =
          plan.hardware.network_bytes_per_s = 1e11;
      plan.mesh.dp_replicate = 2 * plan.mesh.dp_replicate;
      plan.hardware.nodes = plan.mesh.world() / 2;
      plan.train.global_batch *= 2;
      if (has_error(validate(plan))) continue;
      INFO("plan " << i << ", " << j << ": " << summary(plan));
      const StepBound least = bound(plan, cache);
      const Simulation cached = simulate(plan, cache), fresh = simulate(plan);
      REQUIRE(cached.run_bytes == fresh.run_bytes);
      REQUIRE(cached.live_peak_bytes == fresh.live_peak_bytes);
      REQUIRE(cached.time == fresh.time);
      REQUIRE(least.allocated_bytes <= cached.allocated_bytes());
      REQUIRE(least.step_s <= cached.time.step_s);
    }
  }
}

namespace {

// How many of the problems have a plan that fits.
int compare_with_brute_force(std::mt19937_64& random, int num_problems, const std::function<Problem(std::mt19937_64&)>& problem) {
  int fitting = 0;
  for (int i = 0; i < num_problems; ++i) {
    Problem p = problem(random);
    set_memory(p, random);
    INFO("problem " << i);
    const int nodes = p.node_counts.front();
    const SearchResult found = search(p, nodes, *make_predictor(p), {.every_kind = true});
    std::vector<Candidate> all;
    const int best = brute_force(p, all);
    REQUIRE(all.size() == found.candidates.size());
    REQUIRE(found.has_answer());
    for (const bool estimate : {false, true}) {
      const SearchResult quick = search(p, nodes, *make_predictor(p), {.nearest = false, .estimate = estimate});
      REQUIRE((best < 0) == quick.best.empty());
      if (best < 0) continue;
      INFO(summary(found.best.front().choice, p.recompute_every_k)
           << " or " << summary(quick.best.front().choice, p.recompute_every_k));
      CHECK(found.best.front().choice == quick.best.front().choice);
    }
    if (best >= 0) {
      const double seconds = 1 / all[static_cast<size_t>(best)].tokens_per_s_per_gpu;
      CHECK_FALSE(search(p, nodes, *make_predictor(p), {.most_s_per_token = seconds, .nearest = false}).too_slow);
      CHECK(search(p, nodes, *make_predictor(p), {.most_s_per_token = seconds / 1e6, .nearest = false}).too_slow);
    }
    if (best < 0) {
      CHECK(found.answer().verdict == Verdict::kDoesNotFit);
      continue;
    }
    ++fitting;
    INFO(summary(plan_of(p, p.node_counts.front(), found.answer().choice)));
    INFO(summary(plan_of(p, p.node_counts.front(), all[best].choice)));
    CHECK(found.answer().verdict == all[best].verdict);
    CHECK(found.answer().choice == all[best].choice);
  }
  return fitting;
}

// With experts, which ranks may share.
Problem random_expert_problem(std::mt19937_64& random) {
  Problem p = random_problem(random);
  Geometry& g = p.base.model;
  g.family = "mixtral";
  g.num_experts = 4, g.experts_per_token = 2, g.expert_feed_forward = g.feed_forward, g.router_normalized = true;
  p.base.hardware.accelerator = Accelerator::kCpu;
  p.base.hardware.rates = {};
  p.base.hardware.context_bytes = 0;
  p.base.hardware.gpus_per_node = 4;
  p.base.train.optimizer = "adamw";
  p.base.train.method = "pretrain";
  p.base.train.finetune = "full";
  p.global_batch = 4 * p.node_counts.front() * 2;
  p.ep = random() % 2 == 0 ? 2 : 4;
  p.tp = random() % 2 == 0 ? 2 : 0;
  return p;
}

}  // namespace

TEST_CASE("search finds what brute force finds") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 1);
  CHECK(compare_with_brute_force(random, 24, random_problem) > 4);
}

TEST_CASE("search finds what brute force finds where ranks share experts, as many as it is told") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 5);
  CHECK(compare_with_brute_force(random, 6, random_expert_problem) > 1);
  Problem p = random_expert_problem(random);
  std::set<std::pair<Sharding, int>> seen;
  p.tp = 0;
  for (p.ep = 0; p.ep <= 4; ++p.ep) {
    for (const Choice& c : legal_choices(p, p.node_counts.front())) {
      CHECK(c.ep == std::max(p.ep, 1));
      seen.insert({c.sharding, c.ep});
      CHECK(!has_error(validate(plan_of(p, p.node_counts.front(), c))));
    }
  }
  for (const Sharding sharding : {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3})
    for (const int ep : {1, 2, 4}) CHECK(seen.contains({sharding, ep}));
  Geometry& g = p.base.model;
  g.num_kv_heads *= 2, g.num_heads *= 2, g.feed_forward *= 2;
  p.base.train.sequence_length *= 2;
  int choices = 0;
  for (p.tp = 2, p.ep = 1; p.ep <= 4; p.ep *= 2) {  // beside tensor parallelism
    for (const Choice& c : legal_choices(p, p.node_counts.front())) {
      ++choices;
      CHECK((c.sharding != Sharding::kDdp || c.ep == c.dp_shard * c.cp * c.tp));
      CHECK(!has_error(validate(plan_of(p, p.node_counts.front(), c))));
    }
  }
  CHECK(choices > 10);
  // Where tensor parallelism takes all ranks they are what splits the experts' states.
  p.node_counts = {1};
  p.base.hardware.gpus_per_node = 2;
  p.tp = 2, p.ep = 0, p.pp = p.cp = 1;
  CHECK(!legal_choices(p, 1).empty());
}

TEST_CASE("more memory never makes a feasible problem infeasible, nor slower by more than a tie") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 2);
  for (int i = 0; i < 16; ++i) {
    Problem p = random_problem(random);
    set_memory(p, random);
    INFO("problem " << i);
    int last = 3;
    double fastest = 0;
    for (int step = 0; step < 5; ++step) {
      const SearchResult r = search(p, p.node_counts.front(), *make_predictor(p), {.every_kind = true});
      const Candidate& best = r.answer();
      CHECK(static_cast<int>(best.verdict) <= last);
      if (static_cast<int>(best.verdict) < last) fastest = 0;
      last = static_cast<int>(best.verdict);
      if (best.verdict != Verdict::kDoesNotFit) {
        CHECK(best.tokens_per_s_per_gpu >= fastest / (1 + kTimeTie) * (1 - 1e-9));
        fastest = std::max(fastest, best.tokens_per_s_per_gpu);
      }
      p.base.hardware.memory_bytes += p.base.hardware.memory_bytes / 8;
    }
  }
}

TEST_CASE("the order of keys changes nothing in the plan") {
  const Result<Presets> presets = load_presets();
  REQUIRE(presets.ok());
  const auto plan_text = [&](const std::string& yaml) {
    const Result<Value> value = parse_yaml(yaml, "run.yaml");
    REQUIRE(value.ok());
    const Result<Spec> spec = spec_from_value(*value);
    REQUIRE(spec.ok());
    const Result<Problem> problem = resolve(*spec, *presets, {});
    REQUIRE(problem.ok());
    return dump_json(to_json(*make_plan(*problem)));
  };
  const std::string one = plan_text(
      "version: 1\nmodel: {num_layers: 2, hidden: 64, num_heads: 4, num_kv_heads: 2, head_size: 16, feed_forward: 96, vocabulary: "
      "256}\n"
      "train: {sequence_length: 64, global_batch: 16}\nhardware: {gpu: cpu, gpus_per_node: 2}\n");
  const std::string other = plan_text(
      "hardware: {gpus_per_node: 2, gpu: cpu}\ntrain: {global_batch: 16, sequence_length: 64}\n"
      "model: {vocabulary: 256, feed_forward: 96, head_size: 16, num_kv_heads: 2, num_heads: 4, hidden: 64, num_layers: 2}\nversion: "
      "1\n");
  CHECK(one == other);
}
