// Casts and sums over flat buffers.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/store.h"

namespace distsetup::cpu {

// fp32 to the compute dtype.
void cast(const float* from, float* to, int64_t n);
void cast(const float* from, Bf16* to, int64_t n);
void cast(const float* from, F16* to, int64_t n);

// The summing half of a reduce-scatter: target = [target +] sum over members p = 0 .. size - 1, ascending, of member p's contribution,
// which is `own` for p = index and else chunk (p - index + size) mod size - 1 of `received` (chunks lie chunk_stride elements apart).
// Only the first n elements of each are read.
template <class E>
void sum_chunks(float* target, const E* own, const E* received, int64_t size, int64_t index, int64_t chunk_stride, int64_t n,
                Store store);
// The same of activations: target = the members' contributions + addend (may be null), summed in fp32 and rounded once. target may be
// own or addend.
template <class E>
void sum_partials(const E* own, const E* received, const E* addend, E* target, int64_t size, int64_t index, int64_t chunk_stride,
                  int64_t n);

double sum_of_squares(const float* x, int64_t n);

}  // namespace distsetup::cpu
