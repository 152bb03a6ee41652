// Rotary position embedding, in place on the leading heads of each row.
#include "runtime/kernels/cpu/rope.h"

#include <cmath>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/isa.h"

namespace distsetup::cpu {

template <class E>
DISTSETUP_KERNEL void rope(E* rows, const float* cos, const float* sin, int64_t T, int64_t S, int64_t num_heads, int64_t D, int64_t R,
                           int64_t row_stride, float direction, int64_t first_position, const int64_t* positions) {
  const int64_t half = R / 2;
  alignas(64) float as[kTile], bs[kTile], cs[kTile], ds[kTile];
  for (int64_t t = 0; t < T; ++t) {
    const int64_t position = positions == nullptr ? (first_position + t) % S : positions[t];
    const float *c = cos + position * half, *s = sin + position * half;
    for (int64_t n = 0; n < num_heads; ++n) {
      E *first = rows + t * row_stride + n * D, *second = first + half;
      for (int64_t j = 0; j < half; j += kTile) {
        const int64_t m = half - j < kTile ? half - j : kTile;
        const float *a = in_tile(first + j, as, m), *b = in_tile(second + j, bs, m);
        for (int64_t i = 0; i < m; ++i) {
          const float z = s[j + i] * direction;
          cs[i] = a[i] * c[j + i] - b[i] * z;
          ds[i] = b[i] * c[j + i] + a[i] * z;
        }
        put(cs, first + j, m);
        put(ds, second + j, m);
      }
    }
  }
}
template void rope(float*, const float*, const float*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float, int64_t,
                   const int64_t*);
template void rope(Bf16*, const float*, const float*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float, int64_t,
                   const int64_t*);
template void rope(F16*, const float*, const float*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float, int64_t,
                   const int64_t*);

void rope_tables(float* cos, float* sin, const Positions& positions, const std::vector<double>& frequencies, double amplitude) {
  const auto half = int64_t(frequencies.size());
  for (int64_t t = 0; t < positions.rows; ++t) {
    for (int64_t j = 0; j < half; ++j) {
      const double angle = double(positions.at(t)) * frequencies[size_t(j)];
      cos[t * half + j] = float(amplitude * std::cos(angle));
      sin[t * half + j] = float(amplitude * std::sin(angle));
    }
  }
}

}  // namespace distsetup::cpu
