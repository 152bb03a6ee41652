// exp for vector loops: Cephes expf (Stephen L. Moshier, netlib.org/cephes, single precision): reduction by ln 2 in two parts and a
// polynomial of degree 5, about 2 ulp. Arguments are clamped to [-87.3, 88.3]: below, the result is 1.2e-38 instead of a denormal or
// zero; above, 2.2e38 instead of infinity. NaN stays NaN.
#pragma once
#include <bit>
#include <cstdint>

#include "runtime/kernels/cpu/isa.h"

namespace distsetup {

DISTSETUP_KERNEL_INLINE float vector_exp(float x) {
  x = x < -87.3f ? -87.3f : (x > 88.3f ? 88.3f : x);
  const float n = __builtin_floorf(x * 1.44269504088896341f + 0.5f);
  float r = x - n * 0.693359375f;
  r -= n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n: adding 1.5 · 2^23 leaves n in the low bits; no conversion to int, which NaN must not meet.
  return p * std::bit_cast<float>((std::bit_cast<uint32_t>(n + 12582912.0f) + 127u) << 23);
}

}  // namespace distsetup
