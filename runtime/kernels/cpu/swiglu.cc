// SwiGLU: m = silu(gate) · up, and its backward, which may write over its input: every tile is read before it is written.
#include "runtime/kernels/cpu/swiglu.h"

#include "runtime/kernels/cpu/exp.h"

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/isa.h"

namespace distsetup::cpu {

template <class E>
DISTSETUP_KERNEL void swiglu(const E* gu, E* m, int64_t T, int64_t F) {
  alignas(64) float gs[kTile], us[kTile], os[kTile];
  for (int64_t t = 0; t < T; ++t, gu += 2 * F, m += F) {
    for (int64_t j = 0; j < F; j += kTile) {
      const int64_t n = F - j < kTile ? F - j : kTile;
      const float *g = in_tile(gu + j, gs, n), *u = in_tile(gu + F + j, us, n);
      float* o = out_tile(m + j, os);
      for (int64_t i = 0; i < n; ++i) o[i] = g[i] / (1.0f + vector_exp(-g[i])) * u[i];
      flush(o, m + j, n);
    }
  }
}

// With s = sigmoid(gate): d gate = dm · up · s · (1 + gate · (1 - s)), d up = dm · gate · s.
template <class E>
DISTSETUP_KERNEL void swiglu_backward(const E* dm, const E* gu, E* dgu, int64_t T, int64_t F) {
  alignas(64) float gs[kTile], us[kTile], ds[kTile], dgate[kTile], dup[kTile];
  for (int64_t t = 0; t < T; ++t, gu += 2 * F, dgu += 2 * F, dm += F) {
    for (int64_t j = 0; j < F; j += kTile) {
      const int64_t n = F - j < kTile ? F - j : kTile;
      const float *g = in_tile(gu + j, gs, n), *u = in_tile(gu + F + j, us, n), *d = in_tile(dm + j, ds, n);
      for (int64_t i = 0; i < n; ++i) {
        const float s = 1.0f / (1.0f + vector_exp(-g[i])), t1 = d[i] * s;
        dup[i] = t1 * g[i];
        dgate[i] = t1 * u[i] * (1.0f + g[i] * (1.0f - s));
      }
      put(dgate, dgu + j, n);
      put(dup, dgu + F + j, n);
    }
  }
}

#define DISTSETUP_INSTANTIATE(E)                        \
  template void swiglu(const E*, E*, int64_t, int64_t); \
  template void swiglu_backward(const E*, const E*, E*, int64_t, int64_t);
DISTSETUP_INSTANTIATE(float)
DISTSETUP_INSTANTIATE(Bf16)
DISTSETUP_INSTANTIATE(F16)
#undef DISTSETUP_INSTANTIATE

}  // namespace distsetup::cpu
