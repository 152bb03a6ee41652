// Fused attention runs at a share of the tensor peak that depends on kernel generation and GPU; backward does 2.5 times the FLOPs of
// forward (five products instead of two, FlashAttention-2, arXiv 2307.08691, section 3.1) at a lower share. Short sequences and small
// heads reach less. Unfused attention computes all S positions in two batched products and moves every score several times: once
// through scale, mask and softmax, once through dropout.
// Leaves out: uneven causal work between ranks of a ring without zig-zag order, paged or variable-length kernels.
#include "planner/time/attention.h"

#include <algorithm>

#include "planner/time/gemm.h"

namespace distsetup {
namespace {

double rate_share(const AttentionRate& r, const AttentionShape& s) {
  const double head = std::max(s.qk_size, s.v_size), small = head <= 64 ? r.small_head : 1.0;
  return small * s.positions / (s.positions + r.half_positions / 2);
}

// Scores written, scaled and masked, softmax, dropout, read by the weighted sum; backward re-reads what softmax and dropout kept.
double unfused_s(const TimeConstants& c, const AttentionShape& s, double products, double score_traffic) {
  const double rows = s.heads * s.tokens;  // the products of all heads and sequences are one batched launch
  const double gemms = products * (gemm_s(c.gemm_wide, rows, s.sequence, s.qk_size, c.value_bytes, c.value_bytes) +
                                   gemm_s(c.gemm_wide, rows, s.v_size, s.sequence, c.value_bytes, c.value_bytes));
  const double traffic = c.softmax_bytes_per_score * c.value_bytes / 2 * score_traffic;
  return gemms + s.tokens * s.heads * s.sequence * traffic / c.memory_bytes_per_s;
}

}  // namespace

double attention_flops(const AttentionShape& s) { return 2 * s.tokens * s.positions * s.heads * (s.qk_size + s.v_size); }

double attention_forward_s(const TimeConstants& c, const AttentionShape& s) {
  if (c.attention_kernel == AttentionKernel::kUnfused) return unfused_s(c, s, 1, 1);
  return c.gemm.kernel_s + attention_flops(s) / (c.attention.forward_flops_per_s * rate_share(c.attention, s));
}

double attention_backward_s(const TimeConstants& c, const AttentionShape& s) {
  if (c.attention_kernel == AttentionKernel::kUnfused) return unfused_s(c, s, 2, 1.4);
  return c.gemm.kernel_s + 2.5 * attention_flops(s) / (c.attention.backward_flops_per_s * rate_share(c.attention, s));
}

}  // namespace distsetup
