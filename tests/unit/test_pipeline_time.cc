// Seconds of a pipeline's step: few micro-batches are walked, the others take what one takes while the pipeline is full.
#include <catch2/catch.hpp>

#include "planner/native/simulate.h"
#include "support/random_plan.h"

using namespace distsetup;

TEST_CASE("pipeline: each further micro-batch takes its time, also where the lower stages are frozen") {
  struct Case {
    int pp, chunks;
    std::vector<std::string> trainable;
    std::string finetune = "full";
  };
  for (const Case& c :
       {Case{2, 1, {}}, Case{2, 1, {"lm_head"}}, Case{2, 1, {"model.layers.5.mlp"}}, Case{3, 1, {"model.layers.2"}},
        Case{2, 1, {"model.layers.0"}}, Case{2, 2, {"model.layers.1.mlp"}}, Case{2, 1, {}, "lora"}, Case{4, 1, {}, "lora"}}) {
    const auto step_s = [&](int64_t micro_batches) {
      Plan plan = make_test_plan(
          tiny_geometry(8),
          {.sharding = Sharding::kDdp, .accumulation = static_cast<int>(micro_batches), .pp = c.pp, .chunks = c.chunks});
      plan.hardware.accelerator = Accelerator::kCpu;
      plan.hardware.peak_flops_per_s = plan.hardware.memory_bytes_per_s = plan.hardware.link_bytes_per_s =
          plan.hardware.network_bytes_per_s = 1e11;
      plan.hardware.gemm_efficiency = plan.hardware.attention_efficiency = 0.5;
      plan.train.trainable = c.trainable;
      plan.train.finetune = c.finetune;
      if (c.finetune == "lora") plan.train.lora_rank = 4, plan.train.lora_alpha = 8, plan.train.lora_targets = {"q_proj"};
      const double seconds = simulate(plan).time.step_s;
      SimulationCache cache;
      CHECK(bound(plan, cache).step_s <= seconds);
      return seconds;
    };
    INFO("pp " << c.pp << " x " << c.chunks << " " << c.finetune << " " << (c.trainable.empty() ? "" : c.trainable[0]));
    // Up to three rounds are walked whole.
    const double walked_s = (step_s(3 * c.pp) - step_s(2 * c.pp)) / c.pp,
                 others_s = (step_s(9 * c.pp) - step_s(3 * c.pp)) / (6 * c.pp);
    CHECK(others_s == Approx(walked_s).epsilon(0.1));
  }
}

// 1F1B waits one round trip of the other stages (arXiv 2104.04473, section 2.2), no more: a message begins when both sides are there,
// not when the sender has come to its next one.
TEST_CASE("pipeline: with messages that take nothing a step is its micro-batches and pp - 1 turns") {
  for (const int pp : {2, 4, 8}) {
    const auto step_s = [&](int64_t micro_batches) {
      Plan plan =
          make_test_plan(tiny_geometry(8),
                         {.sharding = Sharding::kDdp, .accumulation = static_cast<int>(micro_batches), .micro_batch = 64, .pp = pp});
      plan.hardware.accelerator = Accelerator::kCpu;
      plan.hardware.peak_flops_per_s = plan.hardware.memory_bytes_per_s = 1e10;
      plan.hardware.link_bytes_per_s = plan.hardware.network_bytes_per_s = 1e15;
      plan.hardware.gemm_efficiency = plan.hardware.attention_efficiency = 0.5;
      return simulate(plan).time.step_s;
    };
    const double turn_s = (step_s(20 * pp) - step_s(10 * pp)) / (10 * pp);
    INFO("pp " << pp << ", turn " << turn_s);
    // The first stage has the embedding and the last the head: turns are the fullest's, and others take less.
    const double waits = step_s(2 * pp) / turn_s - 2 * pp;
    CHECK(waits > 0.5 * (pp - 1));
    CHECK(waits < 1.1 * (pp - 1));
  }
}
