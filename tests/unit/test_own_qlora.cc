// A script of one's own that peft alone prepares for 4-bit training: what is not 4-bit stays fp32, and so does what is computed.
// Published peaks of canifinetune on an RTX 4080, 2026-07 (CIF rows of tests/accuracy/transfer.csv).
#include <catch2/catch.hpp>

#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "planner/search/framework_setup.h"
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
