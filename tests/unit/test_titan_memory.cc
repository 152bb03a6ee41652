// torchtitan runs whose logs print memory: what op-selective recompute keeps of eager fp8, and what a traced graph holds.
#include <catch2/catch.hpp>

#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

Setup llama3_8b(int ranks, int64_t sequence) {
  Setup s;
  s.model = *find_model(presets(), "llama3_8b");
  s.gpu = find_gpu(presets(), "h100_hbm2e_96")->gpu;
  s.dp_shard = ranks;
  s.sequence_length = sequence;
  s.software.expandable_segments = true;
  s.software.gradients_freed_after_step = false;
  return s;
}

}  // namespace

TEST_CASE("eager fp8 with aten.abs on the list of op-selective recompute") {  // TT-071, and TT-068 in bf16
  Setup s = llama3_8b(8, 8192);
  s.recompute = ActivationRecompute::kOpSelective;
  s.software.last_block_stays_gathered = true;
  s.optimizer_implementation = OptimizerImplementation::kForeach;
  CHECK(static_cast<double>(replay_memory(s).reserved_bytes) / kGib == Approx(49.59).epsilon(0.02));
  s.fp8 = Fp8Recipe::kTensorwise;
  s.software.fp8_abs_saved = true;
  CHECK(static_cast<double>(replay_memory(s).reserved_bytes) / kGib == Approx(81.77).epsilon(0.02));
}

// Dense layers of a model with latent attention have no product of plain attention to save the magnitudes of.
TEST_CASE("eager fp8 with aten.abs saved and latent attention") {
  Setup s = llama3_8b(64, 4096);
  s.model = *find_model(presets(), "deepseek_v2_lite");
  s.nodes = 8;
  s.recompute = ActivationRecompute::kOpSelective;
  const int64_t half = replay_memory(s).reserved_bytes;
  s.fp8 = Fp8Recipe::kTensorwise;
  s.software.fp8_abs_saved = true;
  CHECK(replay_memory(s).reserved_bytes > half);
}

TEST_CASE("a traced graph with full recomputation keeps the shards it gathers from") {  // TT-135
  Setup s = llama3_8b(4, 2048);
  s.micro_batch = 2;
  s.program = "torchtitan_compiled";
  s.compiled = true;
  s.recompute = ActivationRecompute::kFull;
  s.software.wrapping = UnitWrapping::kAllApart;
  s.software.traced = s.software.eager_kernels = s.software.casts_once = true;
  CHECK(static_cast<double>(replay_memory(s).allocated_bytes) / kGib == Approx(34.22).epsilon(0.02));
  s.software.casts_once = false;
  CHECK(static_cast<double>(replay_memory(s).allocated_bytes) / kGib < 33.6);
}

TEST_CASE("nvfp4's products are not on the list of op-selective recompute, those of the last 15 % of the blocks are") {  // TT-142, 144
  Setup s = llama3_8b(4, 2048);
  s.gpu = find_gpu(presets(), "b200_sxm")->gpu;
  s.micro_batch = 32;
  s.program = "torchtitan_compiled";
  s.compiled = true;
  s.recompute = ActivationRecompute::kOpSelective;
  s.loss = LossHead::kChunkedHead;
  const double half = static_cast<double>(simulate_memory(s).allocated_bytes) / kGib;
  CHECK(half == Approx(174.49).epsilon(0.15));
  s.fp8 = Fp8Recipe::kNvfp4;
  s.compute = Dtype::kF8;
  const double fourth = static_cast<double>(simulate_memory(s).allocated_bytes) / kGib;
  CHECK(fourth / half == Approx(110.95 / 174.49).epsilon(0.12));
  s.recompute = ActivationRecompute::kFull;
  CHECK(static_cast<double>(simulate_memory(s).allocated_bytes) / kGib < fourth);
}
