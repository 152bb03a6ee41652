// Casts of parameters, sums of gradients over ranks, and the sum of squares behind the gradient norm.
#include "runtime/kernels/cpu/reduce.h"

#include <cstring>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/isa.h"

namespace distsetup::cpu {

DISTSETUP_KERNEL void cast(const float* from, float* to, int64_t n) {
  if (n > 0) std::memmove(to, from, size_t(n) * sizeof(float));
}
DISTSETUP_KERNEL void cast(const float* from, Bf16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) from_float(from[i], to + i);
}
DISTSETUP_KERNEL void cast(const float* from, F16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) from_float(from[i], to + i);
}

namespace {

// Elements j .. j + m of all members' chunks, in the order of members.
template <class E>
DISTSETUP_KERNEL_INLINE void sum_tile(float* sum, const E* own, const E* received, int64_t size, int64_t index, int64_t chunk_stride,
                                      int64_t j, int64_t m) {
  for (int64_t p = 0; p < size; ++p) {
    const E* chunk = (p == index ? own : received + ((p - index + size) % size - 1) * chunk_stride) + j;
    if (p == 0) {
      for (int64_t i = 0; i < m; ++i) sum[i] = to_float(chunk[i]);
    } else {
      for (int64_t i = 0; i < m; ++i) sum[i] += to_float(chunk[i]);
    }
  }
}

}  // namespace

template <class E>
DISTSETUP_KERNEL void sum_chunks(float* target, const E* own, const E* received, int64_t size, int64_t index, int64_t chunk_stride,
                                 int64_t n, Store store) {
  alignas(64) float sum[kTile];
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = n - j < kTile ? n - j : kTile;
    sum_tile(sum, own, received, size, index, chunk_stride, j, m);
    float* out = target + j;
    if (store == Store::kAdd) {
      for (int64_t i = 0; i < m; ++i) out[i] += sum[i];
    } else {
      for (int64_t i = 0; i < m; ++i) out[i] = sum[i];
    }
  }
}
template void sum_chunks(float*, const float*, const float*, int64_t, int64_t, int64_t, int64_t, Store);
template void sum_chunks(float*, const Bf16*, const Bf16*, int64_t, int64_t, int64_t, int64_t, Store);
template void sum_chunks(float*, const F16*, const F16*, int64_t, int64_t, int64_t, int64_t, Store);

template <class E>
DISTSETUP_KERNEL void sum_partials(const E* own, const E* received, const E* addend, E* target, int64_t size, int64_t index,
                                   int64_t chunk_stride, int64_t n) {
  alignas(64) float sum[kTile];
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = n - j < kTile ? n - j : kTile;
    sum_tile(sum, own, received, size, index, chunk_stride, j, m);
    if (addend != nullptr) {
      for (int64_t i = 0; i < m; ++i) sum[i] += to_float(addend[j + i]);
    }
    put(sum, target + j, m);
  }
}
template void sum_partials(const float*, const float*, const float*, float*, int64_t, int64_t, int64_t, int64_t);
template void sum_partials(const Bf16*, const Bf16*, const Bf16*, Bf16*, int64_t, int64_t, int64_t, int64_t);
template void sum_partials(const F16*, const F16*, const F16*, F16*, int64_t, int64_t, int64_t, int64_t);

DISTSETUP_KERNEL double sum_of_squares(const float* x, int64_t n) {
  double total = 0;
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = n - j < kTile ? n - j : kTile;
    float sum = 0;
    for (int64_t i = 0; i < m; ++i) sum += x[j + i] * x[j + i];
    total += sum;
  }
  return total;
}

}  // namespace distsetup::cpu
