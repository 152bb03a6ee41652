// How Transformers runs experts, in seconds: in turn, sliced out of a stack, or all of them for every token. The figures are published
// ones of tests/accuracy/transfer.csv (AXO-013, FMO-001).
#include <catch2/catch.hpp>

#include "planner/frameworks/experts.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"
#include "planner/time/gemm.h"
#include "planner/time/step.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

Setup transformers(const std::string& model, const std::string& gpu, int released) {
  Setup s;
  s.model = *find_model(presets(), model);
  s.gpu = find_gpu(presets(), gpu)->gpu;
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.program = "hf_eager";
  s.software.released = released;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kBf16;
  s.recompute = ActivationRecompute::kFull;
  return s;
}

Setup zero3(int released) {
  Setup s = transformers("qwen3_30b_a3b", "a800_sxm_80", released);
  s.framework = Framework::kDeepspeed;
  s.sharding = Sharding::kZero3;
  s.nodes = 2, s.gpus_per_node = 8, s.dp_shard = 16;
  s.nic_kind = "infiniband", s.nic_bytes_per_s = 200e9;
  s.master_copy = true;
  s.sequence_length = 8192;
  return s;
}

}  // namespace

TEST_CASE("experts: Llama 4 sends every token through all of them, and unpacks all that are in 4 bits") {
  Setup s = transformers("llama4_scout", "h100_sxm", 202504);
  s.finetune = Finetune::kQlora;
  s.frozen_dtype = Dtype::kNf4Double;
  s.quantized_experts = true;
  CHECK(expert_kernels(s) == ExpertKernels::kEveryToken);
  CHECK(experts_computed(s) == 16);
  const TimeEstimate t = estimate_time(s);
  CHECK(t.tokens_per_s_per_gpu == Approx(519).epsilon(0.3));
  CHECK(t.mfu < t.hfu / 3);  // nobody asked for most of that work
  s.software.released = 202606;
  CHECK(expert_kernels(s) == ExpertKernels::kEveryToken);
  s.program = "torchtitan_eager";
  CHECK(expert_kernels(s) == ExpertKernels::kGrouped);
}

TEST_CASE("experts: slices of a trained stack cost a stack each, until Transformers 5 groups them") {
  Setup s = transformers("granite3.0_3b_a800m", "a100_sxm_80", 202406);
  s.recompute = ActivationRecompute::kNone;
  s.micro_batch = 8, s.gradient_accumulation = 16, s.sequence_length = 1024;
  s.sample_lengths = {177.9, 126.4, 26, true};
  const double in_turn = estimate_time(s).tokens_per_s_per_gpu;
  CHECK(expert_kernels(s) == ExpertKernels::kSlicesInTurn);
  CHECK(in_turn == Approx(1951).epsilon(0.15));
  Setup frozen = s;
  frozen.finetune = Finetune::kLora;
  CHECK(estimate_time(frozen).tokens_per_s_per_gpu > 1.5 * in_turn);
  Setup grouped = s;
  grouped.grouped_experts = true;
  CHECK(estimate_time(grouped).tokens_per_s_per_gpu > 3 * in_turn);
  s.software.released = 202601;
  CHECK(expert_kernels(s) == ExpertKernels::kGrouped);
}

TEST_CASE("experts: modules in turn are launched and gathered one by one") {
  CHECK(expert_kernels(zero3(202505)) == ExpertKernels::kModulesInTurn);
  const TimeEstimate in_turn = estimate_time(zero3(202505)), grouped = estimate_time(zero3(202601));
  CHECK(in_turn.step_s > 5 * grouped.step_s);  // Megatron against ZeRO-3 on these GPUs: 9.6 against 91.2 s (ms-swift's documentation)
  CHECK(in_turn.launch_s > in_turn.step_s / 2);
  Setup quantised = zero3(202505);
  quantised.finetune = Finetune::kQlora;
  CHECK(quantises_experts(quantised));
  quantised.software.released = 202601;
  CHECK_FALSE(quantises_experts(quantised));
}

TEST_CASE("experts: adapters in turn cost the host the same however many rows there are") {  // PRL-027: 14.2 s, PRL-028: 39.7 s
  Setup s = transformers("qwen3_30b_a3b", "b200", 202601);
  s.framework = Framework::kFsdp2;
  s.sharding = Sharding::kZero3;
  s.program = "torchtitan_compiled";
  s.compiled = true;
  s.gpus_per_node = s.dp_shard = 8;
  s.finetune = Finetune::kLora;
  s.lora = {16, true, true, true, true, true, true, true};
  s.lora.dtype = Dtype::kBf16;
  s.loss = LossHead::kCutCrossEntropy;
  s.sequence_length = 16384;
  const double grouped = estimate_time(s).step_s;
  s.adapters_in_turn = true;
  const TimeEstimate in_turn = estimate_time(s);
  CHECK(grouped < 3);
  CHECK(in_turn.step_s == Approx(14.2).epsilon(0.5));
  // 36 operations of 10 microseconds for each of 128 experts in 48 layers, forward, again, and 1.5 times that in backward.
  CHECK(in_turn.launch_s > 0.9 * 36e-5 * 128 * 48 * 3.5 - grouped);
  s.sequence_length = 65536;
  const double longer = estimate_time(s).step_s;
  s.adapters_in_turn = false;
  CHECK(longer - estimate_time(s).step_s < in_turn.step_s - grouped);
  s.finetune = Finetune::kFull;
  s.adapters_in_turn = true;
  CHECK(operations_per_adapted_expert(s) == 0);
  // A loop's own loss: bytes a logit that are counted, in place of a head's.
  CHECK(time_constants(s, embedded_calibration()).loss_bytes_per_logit < 20);
  s.loss_bytes_per_logit = 116;
  CHECK(time_constants(s, embedded_calibration()).loss_bytes_per_logit == 116);
}

TEST_CASE("samples of different lengths are timed as padded") {
  Setup s = transformers("llama3_8b", "h100_sxm", 202601);
  s.sequence_length = 4096, s.micro_batch = 4;
  const double whole = estimate_time(s).step_s;
  s.sample_lengths = {200, 120, 20, true};
  const double padded = estimate_time(s).step_s;
  CHECK(padded < whole / 3);
  s.micro_batch = 1;
  CHECK(estimate_time(s).step_s < padded);
}

TEST_CASE("4-bit integers are unpacked by PyTorch's operations, a kernel each, in forward alone") {  // QW-076, 077, 081
  Setup s = transformers("qwen_72b", "a100_sxm_80", 202312);
  s.finetune = Finetune::kQlora;
  s.frozen_dtype = Dtype::kInt4;
  s.lora = {64, true, true, true, true, true, true, true};
  s.autocast = true;  // the Trainer's fp16 and bf16 flags
  s.gradient_accumulation = 8;
  const auto tokens_per_s = [&](int64_t length) {
    s.sequence_length = length;
    return estimate_time(s).tokens_per_s_per_gpu;
  };
  CHECK(tokens_per_s(256) == Approx(74.7).epsilon(0.2));
  CHECK(tokens_per_s(512) == Approx(130.0).epsilon(0.2));
  CHECK(tokens_per_s(8192) == Approx(364.5).epsilon(0.1));
  s.frozen_dtype = Dtype::kNf4Double;
  CHECK(tokens_per_s(256) > 74.7 * 1.3);
}

TEST_CASE("a graph that Python interprets dispatches the experts' operations too, unless CUDA graphs replay them") {  // TTM-008
  Setup s = transformers("deepseek_v2_lite", "h100_hbm2e_96", 202603);
  s.framework = Framework::kFsdp2;
  s.program = "torchtitan_compiled";
  s.compiled = true;
  s.software.traced = s.software.interpreted = true;
  const auto launch_of = [&](const char* model) {
    s.model = *find_model(presets(), model);
    return estimate_time(s).launch_s / static_cast<double>(s.model.num_layers);
  };
  s.micro_batch = 1, s.sequence_length = 256;
  CHECK(launch_of("deepseek_v2_lite") > 2.5 * launch_of("llama3_8b"));
  s.software.cuda_graphs = true;
  CHECK(launch_of("deepseek_v2_lite") < 0.03);
}

TEST_CASE("experts, grouped: rows fill whole tiles of their own, and a gradient is written however few rows there are") {
  Setup s = transformers("deepseek_v3", "h800_sxm", 202505);
  s.fp8 = Fp8Recipe::kBlockwise;
  const TimeConstants c = time_constants(s, embedded_calibration());
  const auto flops_per_s = [&](double groups, double rows, double n, double k) {
    return 2 * groups * rows * n * k / grouped_gemm_s(c.gemm_low_precision, groups, groups * rows, n, k, 1, c.grouped_share);
  };
  // DeepGEMM's README of 2025-03, H800 SXM5: 1,099 TFLOP/s with 4 × 8,192 rows and 815 with 4 × 256; 1,288 with 8 × 4,096.
  CHECK(flops_per_s(4, 256, 7168, 2048) / flops_per_s(4, 8192, 7168, 2048) == Approx(815.0 / 1099).epsilon(0.1));
  CHECK(flops_per_s(8, 4096, 4096, 7168) < 1288e12);  // Transformer Engine and PyTorch have no faster ones
  CHECK(flops_per_s(8, 4096, 4096, 7168) > 0.6 * 1288e12);
  const double experts = 128, n = 1536, k = 2048, written = experts * n * k * 8 / c.gemm.memory_bytes_per_s;
  CHECK(grouped_gradient_s(c.gemm, experts, experts, n, k, 2, 8, c.grouped_share) > written);
  const double few = grouped_gradient_s(c.gemm, experts, experts * 32, n, k, 2, 2, c.grouped_share),
               many = grouped_gradient_s(c.gemm, experts, experts * 4096, n, k, 2, 2, c.grouped_share);
  CHECK(many > 10 * few);
  CHECK(many < 128 * few);
}
