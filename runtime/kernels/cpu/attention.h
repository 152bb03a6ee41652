// Causal attention with a window or a soft cap, or of some of a sequence's queries with all its keys, for which libtorch has no CPU
// kernel; everything else takes libtorch's (runtime/engine/ops_aten.cc).
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

#include "runtime/kernels/heads.h"
#include "runtime/kernels/positions.h"

namespace distsetup::cpu {

inline constexpr int64_t kMostHeadSize = 512;

struct CausalAttention {
  int64_t B = 0, S = 0;  // sequences, and keys of each
  Heads heads;           // size <= kMostHeadSize
  float scale = 0;       // of scores
  float soft_cap = 0;    // 0: none
  int64_t window = 0;    // keys a query sees, itself included; 0: all before it
  Positions queries;     // of each sequence, that are here: queries.rows of its S
};
// Rows of a token's q, k and v, each at its own stride (elements) from token to token.
template <class E>
struct QkvRows {
  E *q = nullptr, *k = nullptr, *v = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
};

// T = B · queries.rows. att [T, A · D], lse [T, A]: the logarithm of the sum of exponentials. Work is split over `begin .. end` of the
// queries.
template <class E>
void attention(const QkvRows<const E>& in, E* att, float* lse, const CausalAttention& shape, int64_t begin, int64_t end);
// dq of queries begin .. end of T; dk and dv of keys begin .. end of B · S. Scores are computed again in both: no scratch, and sums
// whose order does not depend on how the tokens are split.
template <class E>
void attention_backward_q(const E* datt, const QkvRows<const E>& in, const E* att, const float* lse, const QkvRows<E>& d,
                          const CausalAttention& shape, int64_t begin, int64_t end);
template <class E>
void attention_backward_kv(const E* datt, const QkvRows<const E>& in, const E* att, const float* lse, const QkvRows<E>& d,
                           const CausalAttention& shape, int64_t begin, int64_t end);

}  // namespace distsetup::cpu
