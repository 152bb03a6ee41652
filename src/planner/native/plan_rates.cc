// Settled from the same calibration that other trainers are timed with: matrix products of cuBLAS as PyTorch's current builds carry
// it, cuDNN's attention from Hopper on, FlashAttention 2 before. Norms, rotary, SwiGLU and the loss are kernels of our own; what they
// and the optimizer reach was measured on one H100 (tests/bench/README.md) and is taken for every GPU. Every operation is dispatched
// by the host.
#include "planner/native/plan_rates.h"

#include <algorithm>

namespace distsetup {
namespace {

constexpr double kHostPerOperation_s = 1e-5;  // ATen's dispatch of a product, and two readings of the meter
// Shares of the memory's bandwidth, measured on an H100 SXM (3.35 TB/s) with 8,192 tokens: SwiGLU, casts and norms 2.9 to 3.0 TB/s;
// AdamW (libtorch's fused kernel, 28 bytes a parameter) 2.25 TB/s; the loss 2.5 ps a logit.
constexpr double kElementwiseShare = 0.88, kOptimizerShare = 0.67, kLossBytesPerLogit = 7.4;
// FlashAttention's deterministic backward beside cuDNN's backward: 1.6 to 3.2 times the time at lengths of 2,048 to 8,192 there,
// geometric mean.
constexpr double kDeterministicShare = 0.47;

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
  constants.memory_bytes_per_s = kElementwiseShare * gpu.memory_bytes_per_s;
  constants.optimizer_bytes_per_s = kOptimizerShare * gpu.memory_bytes_per_s;
  constants.loss_bytes_per_logit = kLossBytesPerLogit;
  if (deterministic) constants.attention.backward_flops_per_s *= kDeterministicShare;
  RatesPlan rates;
  for_each_rate(rates, constants,
                [](auto& rate, const auto& constant) { rate = static_cast<std::decay_t<decltype(rate)>>(constant); });
  return rates;
}

HostPlan host_rates(const Gpu& gpu, double host_memory_bytes_per_s, int gpus_per_node, const Calibration& calibration) {
  Setup s;
  s.gpu = gpu;
  s.host_memory_bytes_per_s = host_memory_bytes_per_s;
  s.gpus_per_node = gpus_per_node;
  s.optimizer_implementation = OptimizerImplementation::kFused;  // libtorch's, on the host
  s.software.released = 202601;
  const TimeConstants constants = time_constants(s, calibration);
  return {0, constants.pcie_bytes_per_s, constants.cpu_adam_bytes_per_s / gpus_per_node};
}

double disk_rate(double nvme_bytes_per_s, int ranks_per_node, const Calibration& calibration) {
  return (nvme_bytes_per_s > 0 ? nvme_bytes_per_s : calibration.at("offload.nvme_bytes_per_s")) / ranks_per_node;
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
