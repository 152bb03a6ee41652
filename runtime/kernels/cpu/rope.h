// Rotary positions.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

namespace distsetup::cpu {

// Rotates the first num_heads heads of every row in place by the angle of the row's position (first + t) mod S; tables are [S, D / 2].
// Element j pairs with j + D / 2 (the convention of Hugging Face's Llama). direction -1 is the backward.
// Source: Su et al., arXiv 2104.09864.
template <class E>
void rope(E* rows, const float* cos, const float* sin, int64_t T, int64_t S, int64_t num_heads, int64_t D, int64_t row_stride,
          float direction, int64_t first = 0);
void rope_tables(float* cos, float* sin, int64_t S, int64_t D, double base);

}  // namespace distsetup::cpu
