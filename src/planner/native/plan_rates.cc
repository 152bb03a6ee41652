// What a plan of the bundled trainer is timed with, settled from the same calibration that other trainers are timed with: matrix
// products of cuBLAS as PyTorch's current builds carry it, FlashAttention 2, norms, rotary, SwiGLU and the loss one kernel each, which
// move their bytes as a compiler's fused kernels do. Leaves out: what its own kernels reach by measurement (no run is in the tables).
#include "planner/time/constants.h"

namespace distsetup {

RatesPlan native_rates(const Gpu& gpu, Compute compute, const Calibration& calibration) {
  Setup s;
  s.gpu = gpu;
  s.program = kNativeProgram;
  s.compiled = true;
  s.compute = compute;
  s.loss = LossHead::kFusedKernel;
  const TimeConstants c = time_constants(s, calibration);
  RatesPlan r;
  r.num_sm = static_cast<int64_t>(c.gemm.num_sm);
  r.gemm_tiles = c.gemm.tiles;
  r.gemm_flops_per_s = c.gemm.flops_per_s;
  r.gemm_burst = c.gemm.burst;
  r.gemm_k_half = c.gemm.k_half;
  r.gemm_misaligned_share = c.gemm.misaligned_share;
  r.gemm_bytes_per_s = c.gemm.memory_bytes_per_s;
  r.kernel_s = c.gemm.kernel_s;
  r.attention_forward_flops_per_s = c.attention.forward_flops_per_s;
  r.attention_backward_flops_per_s = c.attention.backward_flops_per_s;
  r.attention_half_positions = c.attention.half_positions;
  r.attention_small_head = c.attention.small_head;
  r.elementwise_bytes_per_s = c.memory_bytes_per_s;
  r.loss_bytes_per_logit = c.loss_bytes_per_logit;
  r.optimizer_bytes_per_s = c.optimizer_bytes_per_s;
  r.contention = c.contention;
  r.straggler = c.straggler;
  return r;
}

TimeConstants time_constants(const RatesPlan& r) {
  TimeConstants c;
  c.gemm.num_sm = static_cast<double>(r.num_sm);
  c.gemm.tiles = r.gemm_tiles;
  c.gemm.flops_per_s = r.gemm_flops_per_s;
  c.gemm.burst = r.gemm_burst;
  c.gemm.k_half = r.gemm_k_half;
  c.gemm.misaligned_share = r.gemm_misaligned_share;
  c.gemm.memory_bytes_per_s = r.gemm_bytes_per_s;
  c.gemm.kernel_s = r.kernel_s;
  c.gemm_low_precision = c.gemm;
  c.attention_kernel = AttentionKernel::kFlash2;
  c.attention = {r.attention_forward_flops_per_s, r.attention_backward_flops_per_s, r.attention_half_positions,
                 r.attention_small_head};
  c.program = ProgramClass::kCompiled;
  c.memory_bytes_per_s = r.elementwise_bytes_per_s;
  c.loss_bytes_per_logit = r.loss_bytes_per_logit;
  c.optimizer_bytes_per_s = r.optimizer_bytes_per_s;
  c.contention = r.contention;
  c.straggler = r.straggler;
  return c;
}

}  // namespace distsetup
