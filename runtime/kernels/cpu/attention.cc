// Forward: the online softmax of FlashAttention (arXiv 2205.14135) over blocks of keys. Backward: its equations, a query or a key at a
// time: with p = exp(score - lse), dp = datt · v and D = datt · att, the score's gradient is p · (dp - D).
#include "runtime/kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/exp.h"
#include "runtime/kernels/cpu/isa.h"

namespace distsetup::cpu {
namespace {

constexpr int64_t kKeys = 64;  // of a block

template <class E>
DISTSETUP_KERNEL_INLINE void load(const E* row, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = to_float(row[i]);
}
// Eight sums side by side, so that the loop is vectorised without changing the order of additions from run to run.
template <class E>
DISTSETUP_KERNEL_INLINE float dot(const float* a, const E* b, int64_t n) {
  constexpr int64_t kLanes = 8;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) sums[l] += a[i + l] * to_float(b[i + l]);
  float sum = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  for (; i < n; ++i) sum += a[i] * to_float(b[i]);
  return sum;
}
template <class E>
DISTSETUP_KERNEL_INLINE void add_scaled(float* to, float scale, const E* row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += scale * to_float(row[i]);
}

DISTSETUP_KERNEL_INLINE float capped(float score, float cap) { return cap > 0 ? cap * std::tanh(score / cap) : score; }
// Of a capped score with respect to the one before.
DISTSETUP_KERNEL_INLINE float cap_slope(float capped_score, float cap) {
  const float t = cap > 0 ? capped_score / cap : 0;
  return 1 - t * t;
}

DISTSETUP_KERNEL_INLINE int64_t first_key(int64_t s, int64_t window) { return window > 0 ? std::max<int64_t>(0, s - window + 1) : 0; }
DISTSETUP_KERNEL_INLINE int64_t last_query(int64_t s, const CausalAttention& x) {
  return x.window > 0 ? std::min(x.S - 1, s + x.window - 1) : x.S - 1;
}

}  // namespace

template <class E>
DISTSETUP_KERNEL void attention(const QkvRows<const E>& in, E* att, float* lse, const CausalAttention& x, int64_t begin, int64_t end) {
  const int64_t A = x.heads.num_q, D = x.heads.size, group = A / x.heads.num_kv;
  float q[kMostHeadSize], sum_v[kMostHeadSize], score[kKeys];
  for (int64_t t = begin; t < end; ++t) {
    const int64_t base = t / x.queries.rows * x.S, s = x.queries.at(t % x.queries.rows);
    for (int64_t a = 0; a < A; ++a) {
      load(in.q + t * in.q_stride + a * D, q, D);
      const int64_t column = a / group * D;
      float largest = -INFINITY, total = 0;
      std::fill_n(sum_v, D, 0.0f);
      for (int64_t j = first_key(s, x.window); j <= s; j += kKeys) {
        const int64_t n = std::min(kKeys, s - j + 1);
        float block_max = largest;
        for (int64_t i = 0; i < n; ++i) {
          score[i] = capped(dot(q, in.k + (base + j + i) * in.k_stride + column, D) * x.scale, x.soft_cap);
          block_max = std::max(block_max, score[i]);
        }
        const float shrink = largest == -INFINITY ? 0 : std::exp(largest - block_max);
        largest = block_max;
        total *= shrink;
        for (int64_t i = 0; i < D; ++i) sum_v[i] *= shrink;
        for (int64_t i = 0; i < n; ++i) {
          const float p = std::exp(score[i] - largest);
          total += p;
          add_scaled(sum_v, p, in.v + (base + j + i) * in.v_stride + column, D);
        }
      }
      lse[t * A + a] = largest + std::log(total);
      E* out = att + (t * A + a) * D;
      for (int64_t i = 0; i < D; ++i) from_float(sum_v[i] / total, out + i);
    }
  }
}

template <class E>
DISTSETUP_KERNEL void attention_backward_q(const E* datt, const QkvRows<const E>& in, const E* att, const float* lse,
                                           const QkvRows<E>& d, const CausalAttention& x, int64_t begin, int64_t end) {
  const int64_t A = x.heads.num_q, D = x.heads.size, group = A / x.heads.num_kv;
  float q[kMostHeadSize], go[kMostHeadSize], dq[kMostHeadSize];
  for (int64_t t = begin; t < end; ++t) {
    const int64_t base = t / x.queries.rows * x.S, s = x.queries.at(t % x.queries.rows);
    for (int64_t a = 0; a < A; ++a) {
      load(in.q + t * in.q_stride + a * D, q, D);
      load(datt + (t * A + a) * D, go, D);
      std::fill_n(dq, D, 0.0f);
      const float whole = dot(go, att + (t * A + a) * D, D);
      const int64_t column = a / group * D;
      for (int64_t j = base + first_key(s, x.window); j <= base + s; ++j) {
        const E* k = in.k + j * in.k_stride + column;
        const float score = capped(dot(q, k, D) * x.scale, x.soft_cap), p = std::exp(score - lse[t * A + a]);
        const float ds = p * (dot(go, in.v + j * in.v_stride + column, D) - whole) * cap_slope(score, x.soft_cap) * x.scale;
        add_scaled(dq, ds, k, D);
      }
      E* out = d.q + t * d.q_stride + a * D;
      for (int64_t i = 0; i < D; ++i) from_float(dq[i], out + i);
    }
  }
}

template <class E>
DISTSETUP_KERNEL void attention_backward_kv(const E* datt, const QkvRows<const E>& in, const E* att, const float* lse,
                                            const QkvRows<E>& d, const CausalAttention& x, int64_t begin, int64_t end) {
  const int64_t A = x.heads.num_q, D = x.heads.size, group = A / x.heads.num_kv;
  float k[kMostHeadSize], v[kMostHeadSize], dk[kMostHeadSize], dv[kMostHeadSize];
  const Positions& own = x.queries;
  for (int64_t j = begin; j < end; ++j) {
    const int64_t b = j / x.S, s = j - b * x.S, last = last_query(s, x);
    for (int64_t kv = 0; kv < x.heads.num_kv; ++kv) {
      load(in.k + j * in.k_stride + kv * D, k, D);
      load(in.v + j * in.v_stride + kv * D, v, D);
      std::fill_n(dk, D, 0.0f);
      std::fill_n(dv, D, 0.0f);
      for (int64_t row = 0; row < own.rows; ++row) {
        const int64_t position = own.at(row), t = b * own.rows + row;
        if (position < s || position > last) continue;
        for (int64_t a = kv * group; a < (kv + 1) * group; ++a) {
          const E *q = in.q + t * in.q_stride + a * D, *go = datt + (t * A + a) * D, *o = att + (t * A + a) * D;
          const float score = capped(dot(k, q, D) * x.scale, x.soft_cap), p = std::exp(score - lse[t * A + a]);
          float whole = 0;
          for (int64_t i = 0; i < D; ++i) whole += to_float(go[i]) * to_float(o[i]);
          const float ds = p * (dot(v, go, D) - whole) * cap_slope(score, x.soft_cap) * x.scale;
          add_scaled(dk, ds, q, D);
          add_scaled(dv, p, go, D);
        }
      }
      E *out_k = d.k + j * d.k_stride + kv * D, *out_v = d.v + j * d.v_stride + kv * D;
      for (int64_t i = 0; i < D; ++i) from_float(dk[i], out_k + i);
      for (int64_t i = 0; i < D; ++i) from_float(dv[i], out_v + i);
    }
  }
}

#define DISTSETUP_INSTANTIATE(E)                                                                                    \
  template void attention(const QkvRows<const E>&, E*, float*, const CausalAttention&, int64_t, int64_t);           \
  template void attention_backward_q(const E*, const QkvRows<const E>&, const E*, const float*, const QkvRows<E>&,  \
                                     const CausalAttention&, int64_t, int64_t);                                     \
  template void attention_backward_kv(const E*, const QkvRows<const E>&, const E*, const float*, const QkvRows<E>&, \
                                      const CausalAttention&, int64_t, int64_t);
DISTSETUP_INSTANTIATE(float)
DISTSETUP_INSTANTIATE(Bf16)
#undef DISTSETUP_INSTANTIATE

}  // namespace distsetup::cpu
