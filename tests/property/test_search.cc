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
#include "planner/resolve/hardware_facts.h"
#include "planner/resolve/resolve.h"
#include "planner/search/choice.h"
#include "planner/search/make_plan.h"
#include "planner/search/selection.h"
#include "planner/search/space.h"
#include "support/random_plan.h"
#include "support/search_problems.h"
#include "support/seed.h"

using namespace distsetup;

TEST_CASE("simulate's live peak is the expanded schedule's, to the byte") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed());
  int on_host = 0;
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
    REQUIRE(s.host_run_bytes >= host_states_bound_bytes(plan));
    REQUIRE(s.host_run_bytes <= finished.host.host_bytes);
    on_host += host_states_bound_bytes(plan) > 0;
    REQUIRE(s.time.step_s > 0);
    REQUIRE(s.time.step_s == finished.time.step_s);
  }
  CHECK(on_host > 0);
}

TEST_CASE("bounds of bytes and seconds are never above the simulation, on plans of all shardings") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 3);
  int plans = 0;
  while (plans < num_rounds(2500)) {
    Plan plan = make_test_plan(random_geometry(random), random_choice(random), 1 + static_cast<int64_t>(random() % 40));
    if (random() % 2 == 0) plan.train.preference.reference = "sharded";  // read where pairs are learned from
    if (has_error(validate(plan))) continue;
    ++plans;
    const auto rate = [&] { return std::pow(10.0, std::uniform_real_distribution<>(6, 11)(random)); };  // either side may wait
    plan.hardware.link_bytes_per_s = rate(), plan.hardware.network_bytes_per_s = rate();
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
    REQUIRE(nearer_bound_s(plan, cache) <= s.time.step_s);
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

// On GPUs whose nodes have a slow network between them, so that stages pay.
Problem random_staged_problem(std::mt19937_64& random) {
  Problem p = random_problem(random);
  HardwarePlan& h = p.base.hardware;
  h.accelerator = Accelerator::kCuda;
  h.rates = rates_at(1e12, 1e11);
  h.context_bytes = 1 << 20;
  h.gpus_per_node = random() % 2 == 0 ? 4 : 8;
  h.network_bytes_per_s = 1e6 * static_cast<double>(1 + random() % 100);
  p.node_counts = {2};
  p.base.model.num_layers = random() % 2 == 0 ? 4 : 8;
  p.base.train.method = "pretrain";
  p.base.train.finetune = random() % 4 == 0 ? p.base.train.finetune : "full";
  p.recomputes = {Recompute::kNone, Recompute::kFull};
  p.tp = p.cp = 1;
  p.global_batch = h.gpus_per_node * 2;
  return p;
}

// Whose optimizer is the host's, which has memory for some of the plans.
Problem random_host_problem(std::mt19937_64& random) {
  Problem p = random_problem(random);
  HardwarePlan& h = p.base.hardware;
  h.accelerator = Accelerator::kCuda;
  h.rates = rates_at(1e12, 1e11);
  h.context_bytes = 1 << 20;
  p.base.train.method = "pretrain";
  p.base.train.finetune = "full";
  p.base.train.optimizer = "adamw";
  p.base.offload.optimizer = p.setup.offload.optimizer = OffloadPlace::kHost;
  p.base.host = {0, 2e10, 1e10};
  int64_t least = INT64_MAX, most = 0;
  for (const Choice& c : legal_choices(p, p.node_counts.front())) {
    Plan plan = plan_of(p, p.node_counts.front(), c);
    finish(plan);
    least = std::min(least, plan.memory.host_bytes_per_node);
    most = std::max(most, plan.memory.host_bytes_per_node);
  }
  h.host_memory_bytes =
      static_cast<int64_t>(static_cast<double>(least + static_cast<int64_t>(random() % 5) * (most - least) / 3) / kUsableHostShare) +
      1;
  return p;
}

// The same with experts in some layers, which ranks may share.
Problem random_staged_expert_problem(std::mt19937_64& random) {
  Problem p = random_staged_problem(random);
  Geometry& g = p.base.model;
  g.family = "mixtral";
  g.num_experts = 4, g.experts_per_token = 2, g.expert_feed_forward = 8 * (4 + static_cast<int64_t>(random() % 40));
  g.router_normalized = true, g.tied_embeddings = false;
  g.num_layers = 4;
  g.num_heads *= 2, g.num_kv_heads *= 2;
  p.base.train.finetune = "full";
  p.base.train.optimizer = "adamw";
  p.base.hardware.gpus_per_node = 4;
  p.shardings = {static_cast<Sharding>(random() % 2), static_cast<Sharding>(2 + random() % 2)};
  p.tp = std::array{0, 1, 1, 2}[random() % 4];  // 0: any
  p.global_batch = 4 * (1 + static_cast<int64_t>(random() % 2));
  if (p.tp < 2) p.global_batch *= 2;
  return p;
}

}  // namespace

TEST_CASE("search finds what brute force finds where models with experts have stages") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 12);
  CHECK(compare_with_brute_force(random, 8, random_staged_expert_problem) > 2);
  int staged = 0, shared = 0, split = 0;
  for (int i = 0; i < 12; ++i) {
    Problem p = random_staged_expert_problem(random);
    for (const Choice& c : legal_choices(p, 2)) {
      staged += c.pp > 1, shared += c.pp > 1 && c.ep > 1, split += c.pp > 1 && c.tp > 1;
      CHECK(!has_error(validate(plan_of(p, 2, c))));
    }
  }
  CHECK(staged > 0);
  CHECK(shared > 0);
  CHECK(split > 0);
}

TEST_CASE("search finds what brute force finds where stages pay, interleaved or not") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 6);
  CHECK(compare_with_brute_force(random, 6, random_staged_problem) > 1);
  int staged = 0, interleaved = 0;
  for (int i = 0; i < 12; ++i) {
    Problem p = random_staged_problem(random);
    p.base.hardware.memory_bytes = int64_t{1} << 40;
    for (const Choice& c : legal_choices(p, 2)) {
      interleaved += c.virtual_stages > 1;
      CHECK(!has_error(validate(plan_of(p, 2, c))));
    }
    staged += search(p, 2, *make_predictor(p)).answer().choice.pp > 1;
  }
  CHECK(staged > 0);
  CHECK(interleaved > 0);
}

TEST_CASE("search finds what brute force finds") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 1);
  CHECK(compare_with_brute_force(random, 24, random_problem) > 4);
}

TEST_CASE("search finds what brute force finds where hosts have memory for some plans") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 13);
  CHECK(compare_with_brute_force(random, 12, random_host_problem) > 2);
  int short_hosts = 0;
  for (int i = 0; i < 12; ++i) {
    const Problem p = random_host_problem(random);
    for (const Choice& c : legal_choices(p, p.node_counts.front()))
      short_hosts += is_host_short(p.base.hardware, simulate(plan_of(p, p.node_counts.front(), c)).host_run_bytes);
  }
  CHECK(short_hosts > 0);
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
