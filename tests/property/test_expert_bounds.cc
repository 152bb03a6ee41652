// Bounds of plans with experts, shared by ranks, split over tensor-parallel ones and over stages. No torch.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "plan/compile_schedule.h"
#include "plan/layout_cache.h"
#include "plan/native_program.h"
#include "plan/reference.h"
#include "plan/schedule_text.h"
#include "plan/tuning.h"
#include "planner/native/simulate.h"
#include "planner/native/whole_list.h"
#include "planner/search/choice.h"
#include "support/random_plan.h"
#include "support/search_problems.h"
#include "support/seed.h"

namespace distsetup {
namespace {

// Some layers have experts, others none.
Geometry random_expert_geometry(std::mt19937_64& random) {
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  Geometry g = random_geometry(random);
  g.num_layers = pick(1, 9);
  g.family = "qwen2_moe";
  g.num_experts = int64_t{1} << pick(1, 3);
  g.experts_per_token = pick(1, g.num_experts);
  g.expert_feed_forward = 4 * pick(1, 60);
  g.shared_feed_forward = 4 * pick(0, 10);
  g.qkv_bias = true, g.qk_norm = false;
  g.shared_expert_gate = g.shared_feed_forward > 0;
  if (pick(0, 1) == 0)
    for (int64_t i = 0; i < g.num_layers; ++i) g.expert_layer.push_back(i + 1 == g.num_layers || pick(0, 2) > 0);
  return g;
}

PlanChoice random_expert_choice(std::mt19937_64& random, int64_t num_layers) {
  PlanChoice c = random_choice(random);
  c.optimizer = "adamw";
  c.pairs = false;
  c.tp = std::min(c.tp, 2);
  if (c.sharding == Sharding::kDdp) c.dp_shard = 1 << random() % 2;
  if (random() % 2 == 0) c.prefetch = c.reductions_in_flight = 1;
  if (random() % 3 > 0) c.optimizer_on_host = c.parameters_on_host = c.activations_on_host = false;
  if (random() % 2 == 0 && c.reshard) c.pp = 2 + static_cast<int>(random() % 3), c.chunks = 1 + static_cast<int>(random() % 2);
  while (c.pp * c.chunks > num_layers) c.chunks > 1 ? c.chunks = 1 : --c.pp;
  return c;
}

TEST_CASE("bounds of bytes and seconds are never above the simulation, with experts", "[all]") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 11);
  int plans = 0, shared = 0, split = 0, staged = 0;
  while (plans < num_rounds(2500)) {
    const Geometry g = random_expert_geometry(random);
    Plan plan = make_test_plan(g, random_expert_choice(random, g.num_layers), 4 * (1 + static_cast<int64_t>(random() % 10)));
    const int copy = plan.mesh.dp_shard * plan.mesh.cp * plan.mesh.tp;
    plan.mesh.ep = plan.strategy.sharding == Sharding::kDdp ? copy : 1 << random() % 4;
    if (copy % plan.mesh.ep != 0 || has_error(validate(plan))) continue;
    const auto rate = [&] { return std::pow(10.0, std::uniform_real_distribution<>(6, 11)(random)); };  // either side may wait
    plan.hardware.link_bytes_per_s = rate(), plan.hardware.network_bytes_per_s = rate();
    if (random() % 4 > 0) {
      plan.hardware.accelerator = Accelerator::kCuda;
      plan.hardware.rates = rates_at(std::pow(10.0, std::uniform_real_distribution<>(9, 12)(random)), rate());
    }
    if (has_error(validate(plan))) continue;  // which a GPU has no kernel for
    plan.hardware.peak_flops_per_s = plan.hardware.memory_bytes_per_s = 1e11;
    plan.hardware.gemm_efficiency = plan.hardware.attention_efficiency = 0.5;
    ++plans, shared += plan.mesh.ep > 1, split += plan.mesh.tp > 1, staged += plan.mesh.pp > 1;
    SimulationCache cache;
    const Simulation s = simulate(plan, cache);
    const StepBound least = bound(plan, cache);
    INFO("plan " << plans << ": " << summary(plan) << ", " << plan.mesh.dp_replicate << " x " << plan.mesh.dp_shard << ", "
                 << plan.gradient_accumulation << " micro-batches, prefetch " << plan.strategy.prefetch << ", in flight "
                 << plan.strategy.reductions_in_flight);
    REQUIRE(states_bound_bytes(plan) <= least.allocated_bytes);
    REQUIRE(least.allocated_bytes <= s.allocated_bytes());
    REQUIRE(least.step_s > 0);
    REQUIRE(least.step_s <= s.time.step_s);
    REQUIRE(nearer_bound_s(plan, cache) <= s.time.step_s);
  }
  CHECK(shared > plans / 4);
  CHECK(split > plans / 8);
  CHECK(staged > plans / 4);
}

// All of it, adapters, or some units beside a reference that is kept.
void choose_what_is_trained(std::mt19937_64& random, Plan& plan) {
  TrainPlan& t = plan.train;
  const int what = static_cast<int>(random() % 5);
  if (what < 2) {
    t.finetune = what == 0 && plan.mesh.tp == 1 ? "qlora" : "lora";
    t.lora_rank = 1 + static_cast<int64_t>(random() % 4), t.lora_alpha = 4;
    t.lora_targets = {"q_proj", "o_proj"};
  } else if (what == 2) {
    t.trainable = {"model.layers.0"};
  }
  if (what < 2 || plan.model.num_experts > 0 || random() % 2 == 0) return;
  t.method = kDpo;
  t.preference.reference = "sharded";
}

// What a search takes instead of compiled lists and of layouts with names.
TEST_CASE("programs and sizes of units without a list are the compiled list's, and those of layouts without names the whole ones'") {
  INFO("DISTSETUP_SEED=" << test_seed());
  std::mt19937_64 random(test_seed() + 13);
  int plans = 0, in_part = 0, with_copy = 0;
  while (plans < num_rounds(200)) {
    const bool has_experts = random() % 3 > 0;
    const Geometry g = has_experts ? random_expert_geometry(random) : random_geometry(random);
    Plan plan = make_test_plan(g, random_expert_choice(random, g.num_layers), 4 * (1 + static_cast<int64_t>(random() % 10)));
    const int copy = plan.mesh.dp_shard * plan.mesh.cp * plan.mesh.tp;
    if (has_experts) plan.mesh.ep = plan.strategy.sharding == Sharding::kDdp ? copy : 1 << random() % 4;
    choose_what_is_trained(random, plan);
    if (copy % plan.mesh.ep != 0 || !check_native(plan.model, split_of(plan), tuning_of(plan.train)).empty()) continue;
    plan.recompute.dropped = dropped_tensors(plan.model, plan.recompute.policy, tuning_of(plan.train));
    if (has_error(validate(plan))) continue;
    ++plans, in_part += !tuning_of(plan.train).trains_all(), with_copy += keeps_reference(plan.train);
    INFO("plan " << plans << ": " << summary(plan) << ", " << plan.train.finetune << " " << plan.train.preference.reference);
    const auto quick = whole_list(plan), compiled = compiled_whole_list(plan);
    CHECK(quick->compute == compiled->compute);
    CHECK(quick->unit_program == compiled->unit_program);
    CHECK(quick->unit_numel == compiled->unit_numel);
    CHECK(quick->unit_expert_numel == compiled->unit_expert_numel);
    REQUIRE(quick->programs.size() == compiled->programs.size());
    for (size_t i = 0; i < quick->programs.size(); ++i) {
      CHECK(quick->programs[i].variant == compiled->programs[i].variant);
      CHECK(quick->programs[i].num_units == compiled->programs[i].num_units);
      CHECK(quick->programs[i].slot_elements == compiled->programs[i].slot_elements);
    }
    for (int stage = 0; stage < plan.mesh.pp; ++stage) {
      const auto text = [&](LayoutDetail detail) { return canonical_text(compile_schedule(plan, Phase::kStep, stage, detail)); };
      REQUIRE(text(LayoutDetail::kSizes) == text(LayoutDetail::kParameters));
      const Layout sizes = make_sizes(plan, stage), whole = make_layout(plan, stage);
      CHECK(sizes.frozen_numel == whole.frozen_numel);
      CHECK(sizes.quantized_bytes == whole.quantized_bytes);
      CHECK(sizes.frozen_units == whole.frozen_units);
      CHECK(sizes.frozen_expert_units == whole.frozen_expert_units);
      CHECK(sizes.quantized_units == whole.quantized_units);
      CHECK(sizes.reference_units == whole.reference_units);
      CHECK(sizes.shard_numel == whole.shard_numel);
      CHECK(sizes.gathered_numel == whole.gathered_numel);
      CHECK(sizes.trained_expert_numel == whole.trained_expert_numel);
      CHECK(sizes.expert_units == whole.expert_units);
      CHECK(sizes.shared_units == whole.shared_units);
      REQUIRE(sizes.units.size() == whole.units.size());
      for (size_t u = 0; u < sizes.units.size(); ++u) {
        const UnitLayout &a = sizes.units[u], &b = whole.units[u];
        CHECK(a.numel == b.numel);
        CHECK(a.shard_numel == b.shard_numel);
        CHECK(a.shard_group == b.shard_group);
        REQUIRE(a.slots.size() == b.slots.size());
        for (size_t i = 0; i < a.slots.size(); ++i) {
          CHECK(a.slots[i].name == b.slots[i].name);
          CHECK(a.slots[i].offset == b.slots[i].offset);
          CHECK(a.slots[i].shape == b.slots[i].shape);
        }
      }
    }
  }
  CHECK(in_part > plans / 8);
  CHECK(with_copy > 0);
}

}  // namespace
}  // namespace distsetup
