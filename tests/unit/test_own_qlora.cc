// A script of one's own that peft alone prepares for 4-bit training: what is not 4-bit stays fp32, and so does what is computed.
// Published peaks of canifinetune on an RTX 4080, 2026-07 (CIF rows of tests/accuracy/transfer.csv).
#include <catch2/catch.hpp>

#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "planner/search/framework_setup.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"
#include "planner/time/step.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Setup run(const char* model, int64_t length) {
  Setup s;
  s.model = *find_model(presets(), model);
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.program = "hf_eager";
  s.finetune = Finetune::kQlora;
  s.frozen_dtype = Dtype::kNf4Double;
  s.parameter_dtype = Dtype::kBf16;
  s.gradient_dtype = s.state_dtype = s.lora.dtype = Dtype::kF32;
  s.lora.rank = 16;
  s.lora.query = s.lora.key = s.lora.value = s.lora.output = true;
  s.optimizer = OptimizerKind::kAdamW8bit;
  s.optimizer_implementation = OptimizerImplementation::kFused;
  s.paged_optimizer = true;
  s.recompute = ActivationRecompute::kFull;
  s.loss = LossHead::kEager;
  s.software.logits_kept = s.software.residual_in_fp32 = s.software.unquantised_in_fp32 = true;
  s.sequence_length = length;
  s.micro_batch = 1;
  return s;
}

double allocated_gib(const Setup& s) { return static_cast<double>(replay_memory(s).allocated_bytes) / (1 << 30); }

}  // namespace

TEST_CASE("own qlora: peaks as published") {
  CHECK(allocated_gib(run("qwen2.5_1.5b", 1024)) == Approx(4.0413).epsilon(0.02));
  CHECK(allocated_gib(run("qwen2.5_7b", 1024)) == Approx(9.998).epsilon(0.02));
  Setup cast = run("qwen2.5_1.5b", 1024);
  cast.software.unquantised_in_fp32 = false;
  CHECK(allocated_gib(cast) < 0.85 * 4.0413);
}

TEST_CASE("own qlora: a script of one's own on one GPU is prepared so, one of several is not") {
  const auto stays = [](int gpus) {
    const Result<Problem> problem =
        resolved({{"model", "8B"}, {"nodes", "1"}, {"gpus", std::to_string(gpus)}, {"trainer", "unknown"}, {"finetune", "qlora"}});
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    Choice choice;
    choice.sharding = Sharding::kZero3;
    choice.dp_shard = gpus;
    return setup_of(*problem, 1, choice).software.unquantised_in_fp32;
  };
  CHECK(stays(1));
  CHECK_FALSE(stays(8));
}

// A step of 2,048 tokens of a T4, by fitcheck 2026-09 (FCK-001, FCK-005 of tests/accuracy/transfer.csv): 2.69 s and 6.1 s.
TEST_CASE("own qlora: what stays fp32 is computed without tensor cores") {
  Setup wide = run("qwen2.5_1.5b", 1024);
  wide.gpu = find_gpu(presets(), "t4")->gpu;
  wide.micro_batch = 2;
  wide.compute = Dtype::kF16;
  wide.frozen_dtype = Dtype::kNf4;
  wide.flash_attention = false;
  Setup cast = wide;
  cast.software.unquantised_in_fp32 = cast.software.residual_in_fp32 = false;
  const TimeConstants c = time_constants(wide, embedded_calibration());
  CHECK(c.gemm_wide.flops_per_s <= wide.gpu.peak_fp32_flops_per_s);
  CHECK(c.gemm.flops_per_s <= 24.5e12);  // of continuous products, at its 70 W
  CHECK(time_constants(cast, embedded_calibration()).gemm_wide.flops_per_s == c.gemm.flops_per_s);
  const double step_s = estimate_time(wide, embedded_calibration()).step_s;
  CHECK(step_s == Approx(2.69).epsilon(0.15));
  CHECK(estimate_time(cast, embedded_calibration()).step_s < 0.75 * step_s);
  Setup autocast = wide;
  autocast.autocast = true;
  CHECK_FALSE(autocast.stays_in_fp32());
}
