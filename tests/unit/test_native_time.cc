// Seconds of the bundled trainer's plans: the same model of products and attention as other trainers', from what the plan carries.
#include <catch2/catch.hpp>

#include <algorithm>

#include "base/json.h"
#include "plan/plan_json.h"
#include "planner/native/plan_rates.h"
#include "planner/native/simulate.h"
#include "planner/search/make_plan.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Plan plan_for(const Flags& flags) {
  const Result<Problem> problem = resolved(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  const Result<Plan> plan = make_plan(*problem);
  REQUIRE(plan.ok());
  return *plan;
}

}  // namespace

TEST_CASE("native time: a plan's rates are those of other trainers with PyTorch's current libraries") {
  for (const char* gpu : {"h100_sxm", "a100_sxm_80", "b200", "mi300x", "l40s"}) {
    INFO(gpu);
    Setup s;
    s.gpu = find_gpu(presets(), gpu)->gpu;
    s.program = "torchtitan_compiled";
    s.compiled = true;
    const TimeConstants other = time_constants(s, embedded_calibration());
    const TimeConstants own = time_constants(native_rates(s.gpu, Dtype::kBf16, false, embedded_calibration()));
    CHECK(own.gemm.flops_per_s == other.gemm.flops_per_s);
    CHECK(own.gemm.k_half == other.gemm.k_half);
    CHECK(own.gemm.num_sm == other.gemm.num_sm);
    CHECK(own.gemm.tiles == other.gemm.tiles);
    CHECK(own.gemm.misaligned_share == other.gemm.misaligned_share);
    CHECK(own.memory_bytes_per_s > 0.8 * s.gpu.memory_bytes_per_s);  // as measured on an H100
    CHECK(own.memory_bytes_per_s < s.gpu.memory_bytes_per_s);
    CHECK(own.gemm.kernel_s >= other.gemm.kernel_s);
    CHECK(own.contention == other.contention);
    CHECK(own.straggler == other.straggler);
  }
  Setup flash = {};
  flash.gpu = find_gpu(presets(), "a100_sxm_80")->gpu;
  flash.compiled = true;
  const TimeConstants other = time_constants(flash, embedded_calibration());
  REQUIRE(other.attention_kernel == AttentionKernel::kFlash2);
  const RatesPlan rates = native_rates(flash.gpu, Dtype::kBf16, false, embedded_calibration());
  CHECK(rates.attention_forward_flops_per_s == other.attention.forward_flops_per_s);
  CHECK(rates.attention_backward_flops_per_s == other.attention.backward_flops_per_s);
}

TEST_CASE("native time: from Hopper on attention is cuDNN's, the same bits in every run cost time and memory") {
  Setup torchtitan;
  torchtitan.gpu = find_gpu(presets(), "b200")->gpu;
  const TimeConstants other = time_constants(torchtitan, embedded_calibration());
  REQUIRE(other.attention_kernel == AttentionKernel::kCudnn);
  CHECK(native_rates(torchtitan.gpu, Dtype::kBf16, false, embedded_calibration()).attention_backward_flops_per_s ==
        other.attention.backward_flops_per_s);
  const Flags run = {{"model", "llama3.2_1b"}, {"gpus", "1"},        {"nodes", "1"},        {"gpu", "h100_sxm"},
                     {"recompute", "none"},    {"micro-batch", "1"}, {"global-batch", "1"}, {"sharding", "ddp"}};
  Flags same_bits = run;
  same_bits.push_back({"deterministic", "true"});
  const Plan fast = plan_for(run), slow = plan_for(same_bits);
  CHECK(slow.train.deterministic);
  CHECK(slow.time.step_s > 1.05 * fast.time.step_s);
  CHECK(slow.memory.peak_allocated_bytes > fast.memory.peak_allocated_bytes);
}

TEST_CASE("native time: a simulation is a function of the plan alone") {
  const Plan plan = plan_for({{"model", "8B"}, {"gpus", "8"}, {"nodes", "1"}});
  CHECK(plan.hardware.rates.gemm_flops_per_s > 0);
  const Result<Plan> read = plan_from_json(dump_json(to_json(plan)), "plan.json");
  REQUIRE(read.ok());
  CHECK(read->hardware.rates == plan.hardware.rates);
  CHECK(simulate(*read).time.step_s == simulate(plan).time.step_s);
  CHECK(simulate(plan).time.step_s == plan.time.step_s);
}

TEST_CASE("native time: products cost whole waves of tiles") {
  // 132 multiprocessors, output tiles of at least 128 x 64: a few rows more than a multiple of 128 cost another row of tiles.
  Plan plan = plan_for({{"model", "8B"}, {"gpus", "8"}, {"nodes", "1"}});
  const auto step_s = [&](int64_t length) {
    plan.train.sequence_length = length;
    plan.micro_batch = 1;
    plan.gradient_accumulation = 1;
    plan.train.global_batch = plan.mesh.data_parallel();
    return simulate(plan).time.by_instruction;
  };
  const auto forward = [&](int64_t length) {
    for (const InstructionTime& t : step_s(length))
      if (t.op == "Forward") return t.seconds;
    return 0.0;
  };
  // Between 1024 and 1032 tokens lie eight rows; between 1016 and 1024 too, but no new tile.
  CHECK(forward(1032) - forward(1024) > 4 * (forward(1024) - forward(1016)));
}

TEST_CASE("native time: near what FSDP2 compiled predicts and inside of what the hardware does") {
  for (const char* gpu : {"h100_sxm", "a100_sxm_80"}) {
    INFO(gpu);
    Flags run = {{"model", "8B"},       {"gpu", gpu},      {"gpus", "8"},        {"nodes", "1"},
                 {"sharding", "zero2"}, {"dp-shard", "8"}, {"micro-batch", "2"}, {"recompute", "none"}};
    const Plan own = plan_for(run);
    run.insert(run.end(), {{"trainer", "fsdp2"}, {"compile", "true"}});
    const Plan other = plan_for(run);
    CHECK(own.time.tokens_per_s_per_gpu > 0.8 * other.time.tokens_per_s_per_gpu);
    CHECK(own.time.tokens_per_s_per_gpu < 1.25 * other.time.tokens_per_s_per_gpu);
    CHECK(own.time.mfu < own.hardware.rates.gemm_flops_per_s / own.hardware.peak_flops_per_s);
  }
}

TEST_CASE("native time: plans for CPU and for other trainers carry no rates") {
  CHECK(plan_for({{"model", "tiny"}, {"gpu", "cpu"}, {"gpus", "2"}, {"nodes", "1"}}).hardware.rates == RatesPlan{});
  CHECK(plan_for({{"model", "8B"}, {"gpus", "8"}, {"nodes", "1"}, {"trainer", "fsdp2"}}).hardware.rates == RatesPlan{});
}

TEST_CASE("native time: seconds have an interval, from engines like it, and say that no run of its own is measured") {
  const Result<Plan> plan = make_plan(*resolved({{"model", "qwen2.5_7b"}, {"nodes", "1"}, {"gpu", "h100_sxm"}}));
  REQUIRE(plan.ok());
  const TimePlan& t = plan->time;
  CHECK(t.step_low_s < t.step_s / 1.3);  // LLM.Q's fastest runs are so much faster than planned
  CHECK(t.step_high_s > t.step_s * 1.1);
  CHECK(t.step_high_s < t.step_s * 1.5);
  const auto said = [](const std::string& reason) {
    return reason.starts_with("the bundled trainer is measured on one H100 alone: tokens/s -");
  };
  CHECK(std::count_if(plan->reasons.begin(), plan->reasons.end(), said) == 1);
}
