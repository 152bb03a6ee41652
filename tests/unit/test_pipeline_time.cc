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
