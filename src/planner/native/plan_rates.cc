// Settled from the same calibration that other trainers are timed with: matrix products of cuBLAS as PyTorch's current builds carry
// it, FlashAttention 2; norms, rotary, SwiGLU and the loss are kernels of our own that move a value per thread, and reach what
// PyTorch's kernels reach, not what a compiler's do. Every operation is dispatched by the host. No run of it on a GPU is in the
// tables: engines like it (LLM.Q, llm.c), timed by the same functions, say how far that can be off.
#include "planner/native/plan_rates.h"

#include <algorithm>

namespace distsetup {
namespace {

constexpr double kHostPerOperation_s = 1e-5;  // ATen's dispatch of a product, and two readings of the meter

// Each rate of a plan beside the constant that it is, for both directions.
template <class Rates, class Constants, class Pair>
void for_each_rate(Rates& r, Constants& c, Pair pair) {
  pair(r.num_sm, c.gemm.num_sm);
  pair(r.gemm_tiles, c.gemm.tiles);
  pair(r.gemm_flops_per_s, c.gemm.flops_per_s);
  pair(r.gemm_burst, c.gemm.burst);
  pair(r.gemm_k_half, c.gemm.k_half);
  pair(r.gemm_misaligned_share, c.gemm.misaligned_share);
  pair(r.gemm_bytes_per_s, c.gemm.memory_bytes_per_s);
  pair(r.kernel_s, c.gemm.kernel_s);
  pair(r.attention_forward_flops_per_s, c.attention.forward_flops_per_s);
  pair(r.attention_backward_flops_per_s, c.attention.backward_flops_per_s);
  pair(r.attention_half_positions, c.attention.half_positions);
  pair(r.attention_small_head, c.attention.small_head);
  pair(r.elementwise_bytes_per_s, c.memory_bytes_per_s);
  pair(r.loss_bytes_per_logit, c.loss_bytes_per_logit);
  pair(r.optimizer_bytes_per_s, c.optimizer_bytes_per_s);
  pair(r.contention, c.contention);
  pair(r.straggler, c.straggler);
}

}  // namespace

RatesPlan native_rates(const Gpu& gpu, Dtype compute, bool deterministic, const Calibration& calibration) {
  Setup s;
  s.gpu = gpu;
  s.program = kNativeProgram;
  s.compute = compute;
  s.loss = LossHead::kFusedKernel;
  TimeConstants constants = time_constants(s, calibration);
  constants.gemm.kernel_s = std::max(constants.gemm.kernel_s, kHostPerOperation_s);
  RatesPlan rates;
  for_each_rate(rates, constants,
                [](auto& rate, const auto& constant) { rate = static_cast<std::decay_t<decltype(rate)>>(constant); });
  return rates;
}

TimeConstants time_constants(const RatesPlan& rates) {
  TimeConstants c;
  for_each_rate(rates, c, [](const auto& rate, auto& constant) { constant = static_cast<std::decay_t<decltype(constant)>>(rate); });
  c.gemm_low_precision = c.gemm;
  c.attention_kernel = AttentionKernel::kFlash2;
  c.program = ProgramClass::kEager;
  return c;
}

}  // namespace distsetup
