// Causal attention with a window or a soft cap, or of some of a sequence's queries with all or some of its keys, for which libtorch
// has no CPU kernel; everything else takes libtorch's (runtime/engine/ops_aten.cc). Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

#include "runtime/kernels/heads.h"
#include "runtime/kernels/positions.h"

namespace distsetup::cpu {

inline constexpr int64_t kMostHeadSize = 512;

struct CausalAttention {
  int64_t B = 0;       // sequences
  Heads heads;         // size <= kMostHeadSize
  float scale = 0;     // of scores
  float soft_cap = 0;  // 0: none
  int64_t window = 0;  // keys a query sees, itself included; 0: all before it
  Positions queries;   // of each sequence, that are here
  Positions keys;      // of each sequence, that are here
  // Of packed rows: where documents begin in whole sequences of that length, one after the other (src/plan/packed_rows.h). Null: each
  // sequence is one.
  const int64_t* documents = nullptr;
  int64_t length = 0;
};
// Rows of a token's q, k and v, each at its own stride (elements) from token to token.
template <class E>
struct QkvRows {
  E *q = nullptr, *k = nullptr, *v = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
};

// What a query has of keys elsewhere: their weighted values [T, A · D] and the logarithm of their sum of exponentials [T, A].
struct AttendedBefore {
  const float *att = nullptr, *lse = nullptr;  // null: nothing; may be what the result is written to
};
// T = B · queries.rows. att [T, A · D], lse [T, A]: the logarithm of the sum of exponentials. Work is split over `begin .. end` of the
// queries. A query that sees none of the keys, and has seen none before, gets zeros and an lse of -infinity.
template <class E, class O>
void attention(const QkvRows<const E>& in, const AttendedBefore& before, O* att, float* lse, const CausalAttention& shape,
               int64_t begin, int64_t end);

// Of the gradients of q, or of k and v: what they are added to, rows as of the gradients; null: nothing.
template <class O>
struct Added {
  QkvRows<O> to;
  QkvRows<const float> before;
};
// dq of queries begin .. end of T; dk and dv of keys begin .. end of B · keys.rows. `att` and `lse` are those of all keys, wherever
// they are. Scores are computed again in both: no scratch, and sums whose order does not depend on how the tokens are split.
template <class E, class O>
void attention_backward_q(const E* datt, const QkvRows<const E>& in, const E* att, const float* lse, const Added<O>& d,
                          const CausalAttention& shape, int64_t begin, int64_t end);
template <class E, class O>
void attention_backward_kv(const E* datt, const QkvRows<const E>& in, const E* att, const float* lse, const Added<O>& d,
                           const CausalAttention& shape, int64_t begin, int64_t end);

}  // namespace distsetup::cpu
