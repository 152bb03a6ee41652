// The 16-bit floating-point types on the CPU, and the tiles that let both compilers vectorise them: a kernel reads rows through
// in_tile(), computes in fp32 arrays and writes through out_tile() and flush(). For fp32 the "tile" is the row itself, so nothing is
// copied.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>

#include "runtime/kernels/cpu/isa.h"

namespace distsetup {

struct Bf16 {
  uint16_t bits;
};
struct F16 {  // IEEE 754's binary16
  uint16_t bits;
};

DISTSETUP_KERNEL_INLINE float to_float(float v) { return v; }
DISTSETUP_KERNEL_INLINE float to_float(Bf16 v) { return std::bit_cast<float>(uint32_t(v.bits) << 16); }
DISTSETUP_KERNEL_INLINE void from_float(float v, float* out) { *out = v; }
// Round to nearest even. A NaN stays one: the rounding term could carry it into infinity, so its quiet bit is set instead.
DISTSETUP_KERNEL_INLINE void from_float(float v, Bf16* out) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t is_nan = (u & 0x7fffffffu) > 0x7f800000u;
  out->bits = uint16_t(is_nan ? ((u >> 16) | 0x40u) : rounded);
}

// Of both a branch on no path, so that loops over it vectorise. A subnormal number is made by the subtraction: its bits, below those
// of the smallest normal number, are what that is exceeded by.
DISTSETUP_KERNEL_INLINE float to_float(F16 v) {
  constexpr uint32_t kRebias = (127 - 15) << 23, kInfinite = 0x1fu << 23, kSmallest = (127 - 14) << 23;
  const uint32_t magnitude = uint32_t(v.bits & 0x7fffu) << 13, exponent = magnitude & (0x1fu << 23);
  const uint32_t normal = magnitude + kRebias + (exponent == kInfinite ? kRebias : 0);
  const float subnormal = std::bit_cast<float>(magnitude + kSmallest) - std::bit_cast<float>(kSmallest);
  const uint32_t found = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : normal;
  return std::bit_cast<float>(found | uint32_t(v.bits & 0x8000u) << 16);
}
// Round to nearest even; 65,520 and more become infinite. A sum with a number whose last bit is worth what a subnormal's is rounds
// it at the right place.
DISTSETUP_KERNEL_INLINE void from_float(float v, F16* out) {
  constexpr uint32_t kTooLarge = (127 + 16) << 23, kSmallest = (127 - 14) << 23, kLastBit = (127 - 15 + 23 - 10 + 1) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(v), magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - ((127 - 15) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kLastBit)) - kLastBit;
  const uint32_t beyond = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t found = magnitude >= kTooLarge ? beyond : magnitude < kSmallest ? subnormal : normal;
  out->bits = uint16_t(found | ((bits >> 16) & 0x8000u));
}

inline constexpr int64_t kTile = 256;  // elements; three fp32 tiles fit the L1 cache with room to spare

DISTSETUP_KERNEL_INLINE const float* in_tile(const float* row, float*, int64_t) { return row; }
template <class E>
DISTSETUP_KERNEL_INLINE const float* in_tile(const E* row, float* scratch, int64_t n) {
  for (int64_t i = 0; i < n; ++i) scratch[i] = to_float(row[i]);
  return scratch;
}
DISTSETUP_KERNEL_INLINE float* out_tile(float* row, float*) { return row; }
template <class E>
DISTSETUP_KERNEL_INLINE float* out_tile(E*, float* scratch) {
  return scratch;
}
DISTSETUP_KERNEL_INLINE void flush(const float*, float*, int64_t) {}
template <class E>
DISTSETUP_KERNEL_INLINE void flush(const float* tile, E* row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) from_float(tile[i], row + i);
}

// For outputs that may be the same memory as an input: always through the tile, else no compiler vectorises the loop.
DISTSETUP_KERNEL_INLINE void put(const float* tile, float* row, int64_t n) { std::memcpy(row, tile, size_t(n) * sizeof(float)); }
template <class E>
DISTSETUP_KERNEL_INLINE void put(const float* tile, E* row, int64_t n) {
  flush(tile, row, n);
}

}  // namespace distsetup
