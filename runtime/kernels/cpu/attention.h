// Causal attention with a window or a soft cap, for which libtorch has no CPU kernel; everything else takes libtorch's
// (runtime/engine/ops_aten.cc).
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

#include "runtime/kernels/heads.h"

namespace distsetup::cpu {

inline constexpr int64_t kMostHeadSize = 512;

struct CausalAttention {
  int64_t B = 0, S = 0;
  Heads heads;         // size <= kMostHeadSize
  float scale = 0;     // of scores
  float soft_cap = 0;  // 0: none
  int64_t window = 0;  // keys a query sees, itself included; 0: all before it
};
// Rows of a token's q, k and v, each at its own stride (elements) from token to token.
template <class E>
struct QkvRows {
  E *q = nullptr, *k = nullptr, *v = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
};

// att [T, A · D], lse [T, A]: the logarithm of the sum of exponentials. Work is split over `begin .. end` of the B · S tokens.
template <class E>
void attention(const QkvRows<const E>& in, E* att, float* lse, const CausalAttention& shape, int64_t begin, int64_t end);
// dq of tokens begin .. end; then dk and dv of tokens begin .. end as keys. Scores are computed again in both: no scratch, and sums
// whose order does not depend on how the tokens are split.
template <class E>
void attention_backward_q(const E* datt, const QkvRows<const E>& in, const E* att, const float* lse, const QkvRows<E>& d,
                          const CausalAttention& shape, int64_t begin, int64_t end);
template <class E>
void attention_backward_kv(const E* datt, const QkvRows<const E>& in, const E* att, const float* lse, const QkvRows<E>& d,
                           const CausalAttention& shape, int64_t begin, int64_t end);

}  // namespace distsetup::cpu
