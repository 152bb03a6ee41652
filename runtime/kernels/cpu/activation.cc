#include "runtime/kernels/cpu/activation.h"

#include <cmath>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/exp.h"
#include "runtime/kernels/cpu/isa.h"

namespace distsetup::cpu {
namespace {

struct ValueAndSlope {
  float value, slope;
};

constexpr float kRootOf2OverPi = 0.7978845608028654f, kCubic = 0.044715f;
constexpr float kRootOfHalf = 0.7071067811865475f, kDensity = 0.3989422804014327f;  // 1 / sqrt(2 π)

template <Activation kF>
DISTSETUP_KERNEL_INLINE ValueAndSlope at(float x) {
  if constexpr (kF == Activation::kGelu) {
    const float cdf = 0.5f * (1.0f + std::erf(x * kRootOfHalf));
    return {x * cdf, cdf + x * kDensity * vector_exp(-0.5f * x * x)};
  } else if constexpr (kF == Activation::kGeluTanh) {
    // tanh(u) = 2 · sigmoid(2 u) - 1, so half of (1 + tanh(u)) is sigmoid(2 u).
    const float u = kRootOf2OverPi * (x + kCubic * x * x * x), s = 1.0f / (1.0f + vector_exp(-2.0f * u));
    return {x * s, s + x * 2.0f * s * (1.0f - s) * kRootOf2OverPi * (1.0f + 3.0f * kCubic * x * x)};
  } else if constexpr (kF == Activation::kRelu) {
    return {x > 0 ? x : 0, x > 0 ? 1.0f : 0.0f};
  } else if constexpr (kF == Activation::kRelu2) {
    return {x > 0 ? x * x : 0, x > 0 ? 2 * x : 0.0f};
  } else {
    const float s = 1.0f / (1.0f + vector_exp(-x));
    return {x * s, s * (1.0f + x * (1.0f - s))};
  }
}

DISTSETUP_KERNEL_INLINE int64_t tile_of(int64_t left) { return left < kTile ? left : kTile; }

}  // namespace

template <Activation kF, class E>
DISTSETUP_KERNEL void activation(const E* x, E* y, int64_t n) {
  alignas(64) float xs[kTile], ys[kTile];
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = tile_of(n - j);
    const float* a = in_tile(x + j, xs, m);
    for (int64_t i = 0; i < m; ++i) ys[i] = at<kF>(a[i]).value;
    put(ys, y + j, m);
  }
}

template <Activation kF, class E>
DISTSETUP_KERNEL void activation_backward(const E* dy, const E* x, E* dx, int64_t n) {
  alignas(64) float xs[kTile], ds[kTile], os[kTile];
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = tile_of(n - j);
    const float *a = in_tile(x + j, xs, m), *d = in_tile(dy + j, ds, m);
    for (int64_t i = 0; i < m; ++i) os[i] = d[i] * at<kF>(a[i]).slope;
    put(os, dx + j, m);
  }
}

template <Activation kF, class E>
DISTSETUP_KERNEL void gated_activation(const E* gu, E* out, int64_t T, int64_t F) {
  alignas(64) float gs[kTile], us[kTile], os[kTile];
  for (int64_t t = 0; t < T; ++t, gu += 2 * F, out += F) {
    for (int64_t j = 0; j < F; j += kTile) {
      const int64_t m = tile_of(F - j);
      const float *g = in_tile(gu + j, gs, m), *u = in_tile(gu + F + j, us, m);
      for (int64_t i = 0; i < m; ++i) os[i] = at<kF>(g[i]).value * u[i];
      put(os, out + j, m);
    }
  }
}

template <Activation kF, class E>
DISTSETUP_KERNEL void gated_activation_backward(const E* dm, const E* gu, E* dgu, int64_t T, int64_t F) {
  alignas(64) float gs[kTile], us[kTile], ds[kTile], dgate[kTile], dup[kTile];
  for (int64_t t = 0; t < T; ++t, gu += 2 * F, dgu += 2 * F, dm += F) {
    for (int64_t j = 0; j < F; j += kTile) {
      const int64_t m = tile_of(F - j);
      const float *g = in_tile(gu + j, gs, m), *u = in_tile(gu + F + j, us, m), *d = in_tile(dm + j, ds, m);
      for (int64_t i = 0; i < m; ++i) {
        const ValueAndSlope f = at<kF>(g[i]);
        dup[i] = d[i] * f.value;
        dgate[i] = d[i] * u[i] * f.slope;
      }
      put(dgate, dgu + j, m);
      put(dup, dgu + F + j, m);
    }
  }
}

template <class E>
DISTSETUP_KERNEL void add(const E* a, const E* b, E* c, int64_t n) {
  alignas(64) float as[kTile], bs[kTile], os[kTile];
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = tile_of(n - j);
    const float *x = in_tile(a + j, as, m), *y = in_tile(b + j, bs, m);
    for (int64_t i = 0; i < m; ++i) os[i] = x[i] + y[i];
    put(os, c + j, m);
  }
}

#define DISTSETUP_INSTANTIATE(F, E)                                         \
  template void activation<F, E>(const E*, E*, int64_t);                    \
  template void activation_backward<F, E>(const E*, const E*, E*, int64_t); \
  template void gated_activation<F, E>(const E*, E*, int64_t, int64_t);     \
  template void gated_activation_backward<F, E>(const E*, const E*, E*, int64_t, int64_t);
#define DISTSETUP_INSTANTIATE_ALL(F) DISTSETUP_INSTANTIATE(F, float) DISTSETUP_INSTANTIATE(F, Bf16) DISTSETUP_INSTANTIATE(F, F16)
DISTSETUP_INSTANTIATE_ALL(Activation::kGelu)
DISTSETUP_INSTANTIATE_ALL(Activation::kGeluTanh)
DISTSETUP_INSTANTIATE_ALL(Activation::kRelu)
DISTSETUP_INSTANTIATE_ALL(Activation::kRelu2)
DISTSETUP_INSTANTIATE_ALL(Activation::kSilu)
#undef DISTSETUP_INSTANTIATE_ALL
#undef DISTSETUP_INSTANTIATE
template void add(const float*, const float*, float*, int64_t);
template void add(const Bf16*, const Bf16*, Bf16*, int64_t);
template void add(const F16*, const F16*, F16*, int64_t);

}  // namespace distsetup::cpu
