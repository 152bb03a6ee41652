#include "runtime/kernels/cpu/sinks_biases.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/experts.h"

namespace distsetup::cpu {
namespace {

constexpr int64_t kColumns = 64;  // summed at once

template <class E>
void put(float sum, E* to, bool accumulate) {
  from_float(accumulate ? to_float(*to) + sum : sum, to);
}

}  // namespace

template <class E>
void head_sinks(E* att, float* lse, const E* sinks, int64_t begin, int64_t end, int64_t A, int64_t D) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t a = 0; a < A; ++a) {
      const float sink = to_float(sinks[a]), before = lse[t * A + a];
      const float with = std::max(sink, before) + std::log1p(std::exp(-std::fabs(sink - before)));
      E* const row = att + (t * A + a) * D;
      scale_row<E>(row, std::exp(before - with), row, D);
      lse[t * A + a] = with;
    }
  }
}

// The sink's probability is exp(sink - lse), its value is nothing: d sink = -probability · (datt · att).
template <class E>
void head_sinks_backward(const E* datt, const E* att, const float* lse, const E* sinks, E* dsinks, int64_t begin, int64_t end,
                         int64_t T, int64_t A, int64_t D, bool accumulate) {
  for (int64_t a = begin; a < end; ++a) {
    const float sink = to_float(sinks[a]);
    float sum = 0;
    for (int64_t t = 0; t < T; ++t) {
      const int64_t row = t * A + a;
      sum -= std::exp(sink - lse[row]) * dot<E>(datt + row * D, att + row * D, D);
    }
    put(sum, dsinks + a, accumulate);
  }
}

template <class E>
void add_bias_row(E* row, const E* bias, int64_t n) {
  for (int64_t i = 0; i < n; ++i) from_float(to_float(row[i]) + to_float(bias[i]), row + i);
}

template <class E>
void sum_rows(const E* rows, int64_t first_row, int64_t last_row, E* dbias, int64_t n, int64_t begin, int64_t end, bool accumulate) {
  for (int64_t column = begin; column < end; column += kColumns) {
    const int64_t width = std::min(kColumns, end - column);
    float sum[kColumns] = {};
    for (int64_t row = first_row; row < last_row; ++row)
      for (int64_t i = 0; i < width; ++i) sum[i] += to_float(rows[row * n + column + i]);
    for (int64_t i = 0; i < width; ++i) put(sum[i], dbias + column + i, accumulate);
  }
}

template <class E>
void routed_bias_row(const E* x, const float* weights, const int64_t* choice, const E* bias, E* y, int64_t n, int64_t k) {
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += weights[j] * to_float(bias[choice[j] * n + i]);
    from_float(to_float(x[i]) + sum, y + i);
  }
}

template <class E>
void routed_bias_gradient(const E* dy, const float* weights, const int64_t* choice, E* dbias, int64_t T, int64_t n, int64_t k,
                          int64_t num_experts, int64_t begin, int64_t end, bool accumulate) {
  thread_local std::vector<float> memory;
  memory.resize(size_t(num_experts * kColumns));
  float* const sums = memory.data();
  for (int64_t column = begin; column < end; column += kColumns) {
    const int64_t width = std::min(kColumns, end - column);
    std::fill_n(sums, num_experts * kColumns, 0.0f);
    for (int64_t i = 0; i < T * k; ++i) {
      float* const sum = sums + choice[i] * kColumns;
      const E* const row = dy + (i / k) * n + column;
      for (int64_t c = 0; c < width; ++c) sum[c] += weights[i] * to_float(row[c]);
    }
    for (int64_t e = 0; e < num_experts; ++e)
      for (int64_t c = 0; c < width; ++c) put(sums[e * kColumns + c], dbias + e * n + column + c, accumulate);
  }
}

template <class E>
void clipped_swiglu_row(const E* gu, float weight, E* m, int64_t F, ClippedGate of) {
  for (int64_t i = 0; i < F; ++i) {
    const float gate = std::min(to_float(gu[2 * i]), of.limit);
    const float up = std::clamp(to_float(gu[2 * i + 1]), -of.limit, of.limit);
    from_float(weight * ((up + 1) * gate / (1 + std::exp(-of.alpha * gate))), m + i);
  }
}

// With s = sigmoid(alpha · gate): d gate = dm · (up + 1) · s · (1 + alpha · gate · (1 - s)), d up = dm · gate · s; of what is clipped
// 0.
template <class E>
float clipped_swiglu_row_backward(const E* dm, const E* gu, float weight, E* dgu, int64_t F, ClippedGate of) {
  float of_weight = 0;
  for (int64_t i = 0; i < F; ++i) {
    const float g = to_float(gu[2 * i]), u = to_float(gu[2 * i + 1]), d = to_float(dm[i]);
    const float gate = std::min(g, of.limit), up = std::clamp(u, -of.limit, of.limit);
    const float s = 1 / (1 + std::exp(-of.alpha * gate));
    of_weight += d * (up + 1) * gate * s;
    from_float(g <= of.limit ? weight * d * (up + 1) * s * (1 + of.alpha * gate * (1 - s)) : 0.0f, dgu + 2 * i);
    from_float(std::fabs(u) <= of.limit ? weight * d * gate * s : 0.0f, dgu + 2 * i + 1);
  }
  return of_weight;
}

#define DISTSETUP_INSTANTIATE(E)                                                                                                 \
  template void head_sinks(E*, float*, const E*, int64_t, int64_t, int64_t, int64_t);                                            \
  template void head_sinks_backward(const E*, const E*, const float*, const E*, E*, int64_t, int64_t, int64_t, int64_t, int64_t, \
                                    bool);                                                                                       \
  template void add_bias_row(E*, const E*, int64_t);                                                                             \
  template void sum_rows(const E*, int64_t, int64_t, E*, int64_t, int64_t, int64_t, bool);                                       \
  template void routed_bias_row(const E*, const float*, const int64_t*, const E*, E*, int64_t, int64_t);                         \
  template void routed_bias_gradient(const E*, const float*, const int64_t*, E*, int64_t, int64_t, int64_t, int64_t, int64_t,    \
                                     int64_t, bool);                                                                             \
  template void clipped_swiglu_row(const E*, float, E*, int64_t, ClippedGate);                                                   \
  template float clipped_swiglu_row_backward(const E*, const E*, float, E*, int64_t, ClippedGate);
DISTSETUP_INSTANTIATE(float)
DISTSETUP_INSTANTIATE(Bf16)
DISTSETUP_INSTANTIATE(F16)
#undef DISTSETUP_INSTANTIATE

}  // namespace distsetup::cpu
