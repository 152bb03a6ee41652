// Gated DeltaNet without flash-linear-attention: what the loop of PyTorch's operations keeps, moves and launches.
#include <catch2/catch.hpp>

#include "base/value_json.h"
#include "model/hf_config.h"
#include "model/presets.h"
#include "planner/frameworks/delta_rule.h"
#include "planner/frameworks/memory.h"
#include "planner/search/make_plan.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Setup qwen(int64_t length, int64_t micro_batch) {
  Setup s;
  s.model = *find_model(presets(), "qwen3.5_9b");
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.program = "hf_eager";
  s.gpu = find_gpu(presets(), "a100_sxm_80")->gpu;
  s.gpu.usable_memory_bytes = int64_t{1} << 42;
  s.sequence_length = length;
  s.micro_batch = micro_batch;
  s.torch_delta_rule = true;
  return s;
}

Result<Plan> plan_with(Flags flags, const char* kernels) {
  flags.emplace_back("linear-attention", kernels);
  const Result<Problem> problem = resolved(flags);
  if (!problem.ok()) return problem.diagnostics;
  return make_plan(*problem);
}

}  // namespace

// By hand, per token and head of 128: ten tensors of 128 numbers, a state of 128 × 128 and six times 64 numbers a chunk of 64 tokens,
// and for row i of a chunk the i × i numbers above it and the i of its own.
TEST_CASE("delta rule: what is kept for backward") {
  double copies = 0;
  for (int row = 1; row < 64; ++row) copies += row * row + row;
  const double one = 4 * (10 * 128 + 128 * 128 / 64.0 + 6 * 64 + copies / 64);
  const DeltaRuleWork work = delta_rule_work(qwen(2048, 1));
  CHECK(work.kept_bytes == Approx(one * 2048 * 32));
  CHECK(delta_rule_work(qwen(2048, 3)).kept_bytes == Approx(3 * work.kept_bytes));
  CHECK(delta_rule_work(qwen(65, 1)).kept_bytes == Approx(one * 128 * 32));  // a chunk that is begun is whole
  CHECK(delta_layers_share(qwen(2048, 1)) == 0.75);
  // The rows are solved one by one whatever the batch; chunks follow each other along the sequence.
  CHECK(work.forward_kernels == 63 * 6 + 32 * 18 + 51);
  CHECK(delta_rule_work(qwen(2048, 3)).forward_kernels == work.forward_kernels);
  // A slice of each chunk has a gradient as large as the whole: twice the length moves about four times as much.
  CHECK(delta_rule_work(qwen(16384, 1)).backward_bytes > 3 * delta_rule_work(qwen(8192, 1)).backward_bytes);
  Setup fused = qwen(2048, 1);
  fused.torch_delta_rule = false;
  CHECK(delta_rule_work(fused).kept_bytes == 0);
}

TEST_CASE("delta rule: memory holds it, of one layer where layers are recomputed and else of all") {
  const auto backward = [](const Setup& s) {
    double bytes = 0;
    for (const PhaseMemory& one : simulate_memory(s).by_phase)
      if (one.phase == "backward") bytes = static_cast<double>(one.allocated_bytes);
    return bytes;
  };
  for (const bool is_recomputed : {true, false}) {
    Setup s = qwen(8192, 1);
    s.recompute = is_recomputed ? ActivationRecompute::kFull : ActivationRecompute::kNone;
    s.loss = LossHead::kCutCrossEntropy;
    const double kept = delta_rule_work(s).kept_bytes, with = backward(s);
    Setup fused = s;
    fused.torch_delta_rule = false;
    const double rise = with - backward(fused);
    INFO(with << " " << backward(fused));
    CHECK(rise > (is_recomputed ? 0.3 : 23.9) * kept);
    CHECK(rise < (is_recomputed ? 1.3 : 25) * kept);
    if (is_recomputed) continue;
    s.gpu.usable_memory_bytes = int64_t{1} << 42;
    CHECK(static_cast<double>(replay_memory(s).allocated_bytes) ==
          Approx(static_cast<double>(simulate_memory(s).allocated_bytes)).epsilon(0.01));
  }
}

TEST_CASE("delta rule: a plan without the kernels is several times slower") {
  const Flags run = {{"model", "qwen3.5_9b"},    {"nodes", "1"},        {"gpu", "a100_sxm_80"}, {"trainer", "deepspeed"},
                     {"sharding", "zero3"},      {"recompute", "full"}, {"micro-batch", "1"},   {"gradient-accumulation", "8"},
                     {"sequence-length", "8192"}};
  const Result<Plan> kernels = plan_with(run, "fla"), loop = plan_with(run, "torch");
  REQUIRE((kernels.ok() && loop.ok()));
  CHECK(loop->time.step_s > 3 * kernels->time.step_s);
  CHECK(loop->memory.peak_allocated_bytes >= kernels->memory.peak_allocated_bytes);
}

TEST_CASE("delta rule: of layers that are not Gated DeltaNet there is nothing to say") {
  const auto said = [](const char* model, const char* trainer) {
    const Result<Plan> plan = plan_with({{"model", model}, {"nodes", "1"}, {"trainer", trainer}}, "torch");
    const auto error = std::find_if(plan.diagnostics.begin(), plan.diagnostics.end(),
                                    [](const Diagnostic& one) { return one.severity == Severity::kError; });
    return error == plan.diagnostics.end() ? "" : error->message;
  };
  CHECK(said("8B", "ddp") == "'llama3_8b' has no layers of linear attention");
  CHECK(said("nemotron_h_56b", "fsdp1") ==
        "the recurrent layers of 'nemotron_h_56b' are not Gated DeltaNet, and are planned with their kernels alone");
  CHECK(said("qwen3.5_9b", "native") == "trainer.linear_attention is a choice of other trainers");
}

TEST_CASE("delta rule: a config.json states its heads") {
  const Result<Geometry> next = geometry_from_hf_config(
      presets(),
      *parse_json(R"({"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 16,
                      "num_key_value_heads": 2, "head_dim": 256, "intermediate_size": 5120, "vocab_size": 151936, "rms_norm_eps": 1e-6,
                      "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
                      "shared_expert_intermediate_size": 512, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
                      "linear_num_value_heads": 32, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
                      "full_attention_interval": 4})",
                  "config.json"),
      "mine", "");
  REQUIRE(next.ok());
  CHECK(next->delta_heads == 32);
  CHECK(next->scan_channels == 32 * 128);
}
