// bfloat16 on the CPU, and the tiles that let both compilers vectorise it: a kernel reads rows through in_tile(), computes in fp32
// arrays and writes through out_tile() and flush(). For fp32 the "tile" is the row itself, so nothing is copied.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>

#include "runtime/kernels/cpu/isa.h"

namespace distsetup {

struct Bf16 {
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

inline constexpr int64_t kTile = 256;  // elements; three fp32 tiles fit the L1 cache with room to spare

DISTSETUP_KERNEL_INLINE const float* in_tile(const float* row, float*, int64_t) { return row; }
DISTSETUP_KERNEL_INLINE const float* in_tile(const Bf16* row, float* scratch, int64_t n) {
  for (int64_t i = 0; i < n; ++i) scratch[i] = to_float(row[i]);
  return scratch;
}
DISTSETUP_KERNEL_INLINE float* out_tile(float* row, float*) { return row; }
DISTSETUP_KERNEL_INLINE float* out_tile(Bf16*, float* scratch) { return scratch; }
DISTSETUP_KERNEL_INLINE void flush(const float*, float*, int64_t) {}
DISTSETUP_KERNEL_INLINE void flush(const float* tile, Bf16* row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) from_float(tile[i], row + i);
}

// For outputs that may be the same memory as an input: always through the tile, else no compiler vectorises the loop.
DISTSETUP_KERNEL_INLINE void put(const float* tile, float* row, int64_t n) { std::memcpy(row, tile, size_t(n) * sizeof(float)); }
DISTSETUP_KERNEL_INLINE void put(const float* tile, Bf16* row, int64_t n) { flush(tile, row, n); }

}  // namespace distsetup
