// Forward: the online softmax of FlashAttention (arXiv 2205.14135) over blocks of keys. Backward: its equations, a query or a key at a
// time: with p = exp(score - lse), dp = datt · v and D = datt · att, the score's gradient is p · (dp - D).
#include "runtime/kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

// Rows whose positions follow each other: one stretch of a whole sequence, else two.
struct Stretch {
  int64_t row = 0, position = 0, rows = 0;
};
struct Stretches {
  Stretch all[2];
  int count = 0;
};
DISTSETUP_KERNEL_INLINE Stretches stretches(const Positions& p) {
  if (p.second == p.first + p.chunk) return {{{0, p.first, p.rows}, {}}, 1};
  return {{{0, p.first, p.chunk}, {p.chunk, p.second, p.rows - p.chunk}}, 2};
}
struct SeenRows {
  int64_t begin = 0, end = 0;
};
// The document of sequence b that position s is in: its first position, and the one behind it.
struct DocumentSpan {
  int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
};
DISTSETUP_KERNEL_INLINE DocumentSpan document_at(const CausalAttention& x, int64_t b, int64_t s) {
  if (x.documents == nullptr) return {};
  const int64_t* end = std::upper_bound(x.documents, x.documents + x.B * x.length + 1, b * x.length + s);
  return {end[-1] - b * x.length, end[0] - b * x.length};
}
// Rows of a stretch of keys that the query at position s sees, in a document that begins at `begin`.
DISTSETUP_KERNEL_INLINE SeenRows seen_rows(const Stretch& keys, int64_t s, int64_t window, int64_t begin) {
  const int64_t first = std::max({keys.position, first_key(s, window), begin}), last = std::min(keys.position + keys.rows - 1, s);
  return {keys.row + first - keys.position, keys.row + last - keys.position + 1};
}

DISTSETUP_KERNEL_INLINE void start_sums(const float* before, float* sums, int64_t n) {
  if (before == nullptr)
    std::fill_n(sums, n, 0.0f);
  else
    std::copy_n(before, n, sums);
}
template <class O>
DISTSETUP_KERNEL_INLINE void store(const float* sums, O* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) from_float(sums[i], to + i);
}

}  // namespace

template <class E, class O>
DISTSETUP_KERNEL void attention(const QkvRows<const E>& in, const AttendedBefore& before, O* att, float* lse, const CausalAttention& x,
                                int64_t begin, int64_t end) {
  const int64_t A = x.heads.num_q, D = x.heads.size, group = A / x.heads.num_kv;
  const Stretches keys = stretches(x.keys);
  float q[kMostHeadSize], sum_v[kMostHeadSize], score[kKeys];
  for (int64_t t = begin; t < end; ++t) {
    const int64_t base = t / x.queries.rows * x.keys.rows, s = x.queries.at(t % x.queries.rows);
    const int64_t first = document_at(x, t / x.queries.rows, s).begin;
    for (int64_t a = 0; a < A; ++a) {
      load(in.q + t * in.q_stride + a * D, q, D);
      const int64_t column = a / group * D;
      // What was attended to before counts as one key that has taken all of its weight.
      float largest = before.lse == nullptr ? -INFINITY : before.lse[t * A + a], total = largest == -INFINITY ? 0 : 1;
      start_sums(before.att == nullptr ? nullptr : before.att + (t * A + a) * D, sum_v, D);
      for (int c = 0; c < keys.count; ++c) {
        const SeenRows seen = seen_rows(keys.all[c], s, x.window, first);
        for (int64_t j = seen.begin; j < seen.end; j += kKeys) {
          const int64_t n = std::min(kKeys, seen.end - j);
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
      }
      lse[t * A + a] = total == 0 ? -INFINITY : largest + std::log(total);
      O* out = att + (t * A + a) * D;
      for (int64_t i = 0; i < D; ++i) from_float(total == 0 ? 0 : sum_v[i] / total, out + i);
    }
  }
}

template <class E, class O>
DISTSETUP_KERNEL void attention_backward_q(const E* datt, const QkvRows<const E>& in, const E* att, const float* lse,
                                           const Added<O>& d, const CausalAttention& x, int64_t begin, int64_t end) {
  const int64_t A = x.heads.num_q, D = x.heads.size, group = A / x.heads.num_kv;
  const Stretches keys = stretches(x.keys);
  float q[kMostHeadSize], go[kMostHeadSize], dq[kMostHeadSize];
  for (int64_t t = begin; t < end; ++t) {
    const int64_t base = t / x.queries.rows * x.keys.rows, s = x.queries.at(t % x.queries.rows);
    const int64_t first = document_at(x, t / x.queries.rows, s).begin;
    for (int64_t a = 0; a < A; ++a) {
      load(in.q + t * in.q_stride + a * D, q, D);
      load(datt + (t * A + a) * D, go, D);
      start_sums(d.before.q == nullptr ? nullptr : d.before.q + t * d.before.q_stride + a * D, dq, D);
      const float whole = dot(go, att + (t * A + a) * D, D);
      const int64_t column = a / group * D;
      for (int c = 0; c < keys.count; ++c) {
        const SeenRows seen = seen_rows(keys.all[c], s, x.window, first);
        for (int64_t j = base + seen.begin; j < base + seen.end; ++j) {
          const E* k = in.k + j * in.k_stride + column;
          const float score = capped(dot(q, k, D) * x.scale, x.soft_cap), p = std::exp(score - lse[t * A + a]);
          const float ds = p * (dot(go, in.v + j * in.v_stride + column, D) - whole) * cap_slope(score, x.soft_cap) * x.scale;
          add_scaled(dq, ds, k, D);
        }
      }
      store(dq, d.to.q + t * d.to.q_stride + a * D, D);
    }
  }
}

template <class E, class O>
DISTSETUP_KERNEL void attention_backward_kv(const E* datt, const QkvRows<const E>& in, const E* att, const float* lse,
                                            const Added<O>& d, const CausalAttention& x, int64_t begin, int64_t end) {
  const int64_t A = x.heads.num_q, D = x.heads.size, group = A / x.heads.num_kv;
  float k[kMostHeadSize], v[kMostHeadSize], dk[kMostHeadSize], dv[kMostHeadSize];
  const Positions& own = x.queries;
  for (int64_t j = begin; j < end; ++j) {
    const int64_t b = j / x.keys.rows, s = x.keys.at(j % x.keys.rows), behind = document_at(x, b, s).end;
    for (int64_t kv = 0; kv < x.heads.num_kv; ++kv) {
      load(in.k + j * in.k_stride + kv * D, k, D);
      load(in.v + j * in.v_stride + kv * D, v, D);
      start_sums(d.before.k == nullptr ? nullptr : d.before.k + j * d.before.k_stride + kv * D, dk, D);
      start_sums(d.before.v == nullptr ? nullptr : d.before.v + j * d.before.v_stride + kv * D, dv, D);
      for (int64_t row = 0; row < own.rows; ++row) {
        const int64_t position = own.at(row), t = b * own.rows + row;
        if (position < s || position >= behind || (x.window > 0 && position >= s + x.window)) continue;
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
      store(dk, d.to.k + j * d.to.k_stride + kv * D, D);
      store(dv, d.to.v + j * d.to.v_stride + kv * D, D);
    }
  }
}

#define DISTSETUP_INSTANTIATE(E, O)                                                                                              \
  template void attention(const QkvRows<const E>&, const AttendedBefore&, O*, float*, const CausalAttention&, int64_t, int64_t); \
  template void attention_backward_q(const E*, const QkvRows<const E>&, const E*, const float*, const Added<O>&,                 \
                                     const CausalAttention&, int64_t, int64_t);                                                  \
  template void attention_backward_kv(const E*, const QkvRows<const E>&, const E*, const float*, const Added<O>&,                \
                                      const CausalAttention&, int64_t, int64_t);
DISTSETUP_INSTANTIATE(float, float)
DISTSETUP_INSTANTIATE(Bf16, Bf16)
DISTSETUP_INSTANTIATE(Bf16, float)
DISTSETUP_INSTANTIATE(F16, F16)
DISTSETUP_INSTANTIATE(F16, float)
#undef DISTSETUP_INSTANTIATE

}  // namespace distsetup::cpu
