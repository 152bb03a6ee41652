// What FSDP1 holds between micro-batches under no_sync, and what a loss in chunks holds with its head inside.
#include <catch2/catch.hpp>

#include "model/count.h"
#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "planner/frameworks/setup.h"
#include "planner/search/framework_setup.h"
#include "support/presets.h"
#include "support/problems.h"

namespace distsetup {
namespace {

Setup llama_8b() {
  Setup s;
  s.model = *find_model(presets(), "llama3_8b");
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.dp_shard = 8;
  s.sequence_length = 2048;
  s.recompute = ActivationRecompute::kFull;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kBf16;
  return s;
}

int64_t phase_bytes(const MemoryEstimate& memory, const std::string& phase) {
  for (const PhaseMemory& one : memory.by_phase)
    if (one.phase == phase) return one.allocated_bytes;
  return 0;
}

}  // namespace

TEST_CASE("whole gradients: FSDP1 under no_sync holds a gradient per parameter from one micro-batch to the next") {
  Setup s = llama_8b();
  s.framework = Framework::kFsdp1;
  s.gradient_accumulation = 4;
  const auto parameters = static_cast<double>(count_parameters(s.model).total);
  const double reduced = static_cast<double>(simulate_memory(s).allocated_bytes);
  s.software.accumulates_whole = true;
  const double whole = static_cast<double>(simulate_memory(s).allocated_bytes);
  CHECK(whole - reduced > 1.6 * parameters);  // 2 bytes each, less what the last micro-batch has reduced already
  CHECK(whole - reduced < 2 * parameters);
  // The walk over all blocks and the replay of two steps say the same.
  s.gpu.usable_memory_bytes = int64_t{1} << 40;
  CHECK(static_cast<double>(replay_memory(s).allocated_bytes) == Approx(whole).epsilon(0.01));
  // One micro-batch has nothing to add up.
  s.gradient_accumulation = 1;
  const int64_t one = simulate_memory(s).allocated_bytes;
  s.software.accumulates_whole = false;
  CHECK(simulate_memory(s).allocated_bytes == one);
}

// transformers/trainer.py 4.57: every micro-batch but the last under accelerator.no_sync; accelerate 1.11 knows it of FSDP2 too.
TEST_CASE("whole gradients: plans for FSDP under the Hugging Face Trainer count them, torchtitan reduces each micro-batch") {
  const auto gradients = [](Flags more, const char* accumulation) {
    for (const std::pair<const char*, const char*>& one : {std::pair{"model", "8B"},
                                                           {"nodes", "1"},
                                                           {"recompute", "full"},
                                                           {"micro-batch", "1"},
                                                           {"sharding", "zero3"},
                                                           {"gradient-accumulation", accumulation}})
      more.emplace_back(one.first, one.second);
    const Result<Problem> problem = resolved(more);
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    Setup s = base_setup(*problem, 1);
    s.sharding = Sharding::kZero3;
    s.dp_shard = 8;
    s.recompute = ActivationRecompute::kFull;
    s.gradient_accumulation = accumulation[0] - '0';
    return static_cast<double>(simulate_memory(s).allocated_bytes);
  };
  const double parameters = 8.03e9;
  for (const Flags& trainer : {Flags{{"trainer", "fsdp1"}}, Flags{{"trainer", "fsdp2"}, {"launch-target", "transformers"}}})
    CHECK(gradients(trainer, "8") - gradients(trainer, "1") > 1.5 * parameters);
  const Flags torchtitan = {{"trainer", "fsdp2"}};
  CHECK(gradients(torchtitan, "8") - gradients(torchtitan, "1") < 0.5 * parameters);
}

TEST_CASE("4-bit matrices: a graph that outlives backward holds the inputs of two micro-batches") {
  Setup s = llama_8b();
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.dp_shard = 1;
  s.program = "litgpt_eager";
  s.loss = LossHead::kChunked;
  s.recompute = ActivationRecompute::kNone;
  s.finetune = Finetune::kQlora;
  s.frozen_dtype = Dtype::kNf4;
  s.lora.rank = 8;
  s.lora.query = s.lora.value = true;
  s.lora.dtype = Dtype::kBf16;
  const int64_t freed = simulate_memory(s).allocated_bytes;
  s.software.graph_outlives_backward = true;
  // Per layer and token: two norms' outputs, attention's output, the MLP's product, in 16 bits.
  const int64_t inputs = 2 * 2048 * (3 * s.model.hidden + s.model.feed_forward) * s.model.num_layers;
  CHECK(static_cast<double>(simulate_memory(s).allocated_bytes - freed) == Approx(static_cast<double>(inputs)).epsilon(0.001));
  s.gpu.usable_memory_bytes = int64_t{1} << 40;
  CHECK(static_cast<double>(replay_memory(s).allocated_bytes) ==
        Approx(static_cast<double>(simulate_memory(s).allocated_bytes)).epsilon(0.01));
}

TEST_CASE("fused q k v: op-selective recomputation keeps k with them") {
  Setup s = llama_8b();
  s.recompute = ActivationRecompute::kOpSelective;
  for (const char* program : {"torchtitan_eager", "torchtitan_compiled"}) {
    s.program = program;
    s.compiled = s.program == "torchtitan_compiled";
    s.software.fused_qkv = false;
    const int64_t apart = simulate_memory(s).allocated_bytes;
    s.software.fused_qkv = true;
    const int64_t keys = 2 * s.tokens() * s.model.num_kv_heads * s.model.head_size * s.model.num_layers;
    CHECK(static_cast<double>(simulate_memory(s).allocated_bytes - apart) == Approx(static_cast<double>(keys)).epsilon(0.05));
  }
}

TEST_CASE("chunked head: a chunk of logits is made and differentiated at a time") {
  Setup s = llama_8b();
  s.micro_batch = 32;
  s.loss_chunks = 8;
  s.loss = LossHead::kEager;
  const int64_t eager = phase_bytes(simulate_memory(s), "loss");
  s.loss = LossHead::kLiger;
  const int64_t liger = phase_bytes(simulate_memory(s), "loss");
  s.loss = LossHead::kChunkedHead;
  const int64_t chunked = phase_bytes(simulate_memory(s), "loss");
  const int64_t logits = s.tokens() * s.model.vocabulary;
  CHECK(chunked < eager);
  CHECK(chunked - liger > 8 * logits / s.loss_chunks);  // fp32: log-softmax, its gradient and the one before it, beside 16-bit logits
  CHECK(chunked - liger < 16 * logits / s.loss_chunks);
  s.loss_chunks = 16;
  CHECK(phase_bytes(simulate_memory(s), "loss") < chunked - 4 * logits / 16);
}

}  // namespace distsetup
