// What a user says of attention's kernel and of saved activations: trainer.attention, parallel.offload.activations.
#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/frameworks/memory.h"
#include "planner/search/framework_setup.h"
#include "planner/time/constants.h"
#include "planner/time/step.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Flags flags_of(const std::string& trainer, const std::string& gpu, const Flags& more = {}) {
  Flags flags = {{"gpu", gpu}, {"gpus", "8"}, {"nodes", "1"}, {"trainer", trainer}, {"micro-batch", "1"}};
  if (std::none_of(more.begin(), more.end(), [](const auto& flag) { return flag.first == "model"; }))
    flags.push_back({"model", "llama3_8b"});
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Setup setup_of(const std::string& trainer, const std::string& gpu, const Flags& more = {}) {
  const Result<Problem> problem = resolved(flags_of(trainer, gpu, more));
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  Setup s = base_setup(*problem, 1);
  s.dp_shard = 8;
  s.sequence_length = 16384;
  return s;
}

AttentionKernel kernel_of(const std::string& trainer, const std::string& gpu, const Flags& more = {}) {
  return attention_kernel(setup_of(trainer, gpu, more));
}

std::string refusal(const std::string& trainer, const std::string& gpu, const Flags& more) {
  const Result<Problem> problem = resolved(flags_of(trainer, gpu, more));
  return problem.ok() ? "" : format_diagnostics(problem.diagnostics);
}

int64_t allocated(const Setup& s) { return simulate_memory(s).allocated_bytes; }

}  // namespace

TEST_CASE("trainer: the names of tools that start one say which to write") {
  Spec spec;
  for (const auto& [tool, written] :
       {std::pair{"unsloth", "--offload-activations host"}, {"Axolotl", "fsdp2"}, {"llama-factory", "ddp"}}) {
    INFO(tool);
    const std::string said = format_diagnostics(set_flag(spec, "trainer", std::string_view(tool), {"command line", 0, 0}));
    CHECK(said.find(written) != std::string::npos);
  }
}

TEST_CASE("attention: a package that is asked for is taken, in the words of other tools too") {
  CHECK(kernel_of("unknown", "h100_sxm") == AttentionKernel::kFlash2);
  CHECK(kernel_of("unknown", "h100_sxm", {{"attention", "flash3"}}) == AttentionKernel::kFlash3);
  CHECK(kernel_of("fsdp1", "h100_sxm", {{"attn-implementation", "flash_attention_3"}}) == AttentionKernel::kFlash3);
  CHECK(kernel_of("fsdp2", "h100_sxm", {{"attention", "flash2"}}) == AttentionKernel::kFlash2);  // torchtitan prefers cuDNN's
  CHECK(kernel_of("unknown", "b200") == AttentionKernel::kCudnn);
  CHECK(kernel_of("unknown", "b200", {{"attn-impl", "fa4"}}) == AttentionKernel::kFlash4);
  CHECK(kernel_of("deepspeed", "b200", {{"attention", "flash2"}}) == AttentionKernel::kFlash2);
  CHECK(kernel_of("ddp", "a100_sxm_80", {{"attention", "sdpa"}}) == AttentionKernel::kFlash2);
  CHECK(kernel_of("ddp", "l40s", {{"attention", "flash3"}}) == AttentionKernel::kFlash2);  // its kernels of sm80 are those of 2
  CHECK(kernel_of("ddp", "rtx_4090", {{"attention", "fa3"}}) == AttentionKernel::kFlash2);
}

TEST_CASE("attention: a package without kernels for the GPU is refused, and the bundled trainer takes its own") {
  CHECK(refusal("unknown", "b200", {{"attention", "flash3"}}).find("FlashAttention 3 has no kernels for B200") != std::string::npos);
  CHECK(refusal("fsdp1", "a100_sxm_80", {{"attention", "flash4"}}).find("has no kernels for A100") != std::string::npos);
  CHECK(refusal("ddp", "t4", {{"attention", "flash2"}}).find("has no kernels for T4") != std::string::npos);
  CHECK(refusal("ddp", "t4", {{"attention", "flash3"}}).find("FlashAttention 3 has no kernels for T4") != std::string::npos);
  CHECK(refusal("native", "h100_sxm", {{"attention", "flash3"}}).find("trainer.attention is a choice of other trainers") !=
        std::string::npos);
}

TEST_CASE("attention: unfused keeps its scores and takes longer, where the program says so") {
  const Setup fused = setup_of("fsdp1", "h100_sxm"), eager = setup_of("fsdp1", "h100_sxm", {{"attention", "eager"}});
  CHECK(attention_kernel(eager) == AttentionKernel::kUnfused);
  const int64_t scores = 2 * eager.model.num_heads * eager.sequence_length * eager.sequence_length;
  CHECK(allocated(eager) > allocated(fused) + scores);
  CHECK(estimate_time(eager).attention_s > 2 * estimate_time(fused).attention_s);
  CHECK(refusal("fsdp2", "h100_sxm", {{"attention", "eager"}}).find("torchtitan_eager") != std::string::npos);
}

// Its instructions are Ampere's: it does not know Blackwell's, whose library kernels are faster.
TEST_CASE("attention: FlashAttention 2 is no faster on Blackwell than on Hopper") {
  const double hopper = estimate_time(setup_of("unknown", "h100_sxm", {{"attention", "flash2"}})).attention_s;
  const double blackwell = estimate_time(setup_of("unknown", "b200", {{"attention", "flash2"}})).attention_s;
  CHECK(blackwell == Approx(hopper).epsilon(0.15));
  CHECK(blackwell > 1.5 * estimate_time(setup_of("unknown", "b200")).attention_s);
}

// What a block keeps, its input, waits in host memory but for those that are on their way.
TEST_CASE("offload of activations: the inputs of blocks leave the GPU under every trainer above Transformers") {
  for (const char* trainer : {"ddp", "fsdp1", "deepspeed", "unknown"}) {
    INFO(trainer);
    Setup s = setup_of(trainer, "h100_sxm", {{"offload-activations", "host"}, {"finetune", "lora"}, {"loss-head", "liger"}});
    if (s.framework == Framework::kDdp) s.sharding = Sharding::kDdp, s.dp_replicate = 8, s.dp_shard = 1;
    s.recompute = ActivationRecompute::kFull;
    const MemoryEstimate moved = simulate_memory(s);
    s.offload.activations = OffloadPlace::kNone;
    const MemoryEstimate kept = simulate_memory(s);
    const int64_t input = 2 * s.model.hidden * s.sequence_length;
    CHECK(kept.allocated_bytes - moved.allocated_bytes > input * (s.model.num_layers - 4));
    CHECK(moved.host_bytes_per_node - kept.host_bytes_per_node >= 8 * input * (s.model.num_layers - 4));
  }
}

// transformers/models/gpt_oss/modeling_gpt_oss.py: of each row clamped gate, its sigmoid, their product and up + 1 are kept beside
// what the first matrix gives and the second one reads; without them the activated gate alone.
TEST_CASE("GPT-OSS under Transformers: its gates keep more, its sinks make scores whole unless a kernel has them") {
  CHECK(refusal("fsdp2", "h100_sxm", {{"model", "gpt_oss_20b"}}).find("biases in its experts") != std::string::npos);
  Setup s = setup_of("fsdp1", "h100_sxm", {{"model", "gpt_oss_20b"}, {"attention", "flash3"}});
  CHECK(attention_kernel(s) == AttentionKernel::kFlash3);
  CHECK(attention_kernel(setup_of("fsdp1", "h100_sxm", {{"model", "gpt_oss_20b"}})) == AttentionKernel::kUnfused);
  s.recompute = ActivationRecompute::kNone;
  s.sequence_length = 4096;
  const int64_t biased = allocated(s);
  s.model.mlp_bias = false;
  const int64_t more = 3 * 2 * s.model.expert_feed_forward * s.model.experts_per_token * s.sequence_length * s.model.num_layers;
  CHECK(static_cast<double>(biased - allocated(s)) == Approx(static_cast<double>(more)).epsilon(0.1));
}
