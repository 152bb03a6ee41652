// Rotary positions.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/kernels/positions.h"

namespace distsetup::cpu {

// Rotates the first R elements of each of the first num_heads heads of every row in place by the angle of the row's position
// (first + t) mod S, or the one that `positions` has for row t where it is given; tables are [S, R / 2]. Element j pairs with j + R /
// 2 (the convention of Hugging Face's Llama). direction -1 is the backward. Source: Su et al., arXiv 2104.09864.
template <class E>
void rope(E* rows, const float* cos, const float* sin, int64_t T, int64_t S, int64_t num_heads, int64_t D, int64_t R,
          int64_t row_stride, float direction, int64_t first = 0, const int64_t* positions = nullptr);
// [S, pairs], a row for each row of a sequence: amplitude · cos and sin of its position times the pair's frequency.
void rope_tables(float* cos, float* sin, const Positions& positions, const std::vector<double>& frequencies, double amplitude);

}  // namespace distsetup::cpu
