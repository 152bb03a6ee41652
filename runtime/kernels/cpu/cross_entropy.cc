// Softmax, loss and the gradient of the logits in one pass over each row; the gradient may take the logits' memory.
// fp32 keeps exp(z - max) in the output row and scales it; Bf16 computes it twice, so that nothing is rounded twice.
#include "runtime/kernels/cpu/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/exp.h"
#include "runtime/kernels/cpu/isa.h"

namespace distsetup::cpu {
namespace {

DISTSETUP_KERNEL_INLINE int64_t tile_size(int64_t left) { return left < kTile ? left : kTile; }

template <class E>
DISTSETUP_KERNEL_INLINE float row_max(const E* z, int64_t V) {
  alignas(64) float zs[kTile];
  float largest = -3.0e38f;
  for (int64_t j = 0; j < V; j += kTile) {
    const int64_t m = tile_size(V - j);
    const float* a = in_tile(z + j, zs, m);
    for (int64_t i = 0; i < m; ++i) largest = a[i] > largest ? a[i] : largest;
  }
  return largest;
}

DISTSETUP_KERNEL_INLINE float shaped(float z, LogitShape shape) {
  const float s = z * shape.multiplier;
  return shape.soft_cap > 0 ? shape.soft_cap * std::tanh(s / shape.soft_cap) : s;
}
DISTSETUP_KERNEL_INLINE bool is_plain(LogitShape shape) { return shape.multiplier == 1 && !(shape.soft_cap > 0); }
template <class E>
DISTSETUP_KERNEL_INLINE const float* shaped_tile(const E* z, float* scratch, int64_t m, LogitShape shape) {
  const float* a = in_tile(z, scratch, m);
  if (is_plain(shape)) return a;
  for (int64_t i = 0; i < m; ++i) scratch[i] = shaped(a[i], shape);
  return scratch;
}

// A row of the whole vocabulary, of what each rank found in its columns.
struct WholeRow {
  float largest;
  double sum, target;
};
DISTSETUP_KERNEL_INLINE WholeRow whole_row(const float* stats, int64_t size, int64_t member_stride) {
  WholeRow row{stats[0], 0, 0};
  for (int64_t p = 1; p < size; ++p) row.largest = std::max(row.largest, stats[p * member_stride]);
  for (int64_t p = 0; p < size; ++p) {
    const float* member = stats + p * member_stride;
    row.sum += double(member[1]) * std::exp(double(member[0]) - double(row.largest));
    row.target += double(member[2]);
  }
  return row;
}

}  // namespace

template <class E>
DISTSETUP_KERNEL void cross_entropy(const E* z, const int64_t* target, E* dz, double* loss, int64_t T, int64_t V, double scale,
                                    double* row_loss) {
  alignas(64) float zs[kTile], os[kTile];
  double total = 0;
  for (int64_t t = 0; t < T; ++t, z += V, dz += V) {
    if (target[t] < 0) {
      std::memset(static_cast<void*>(dz), 0, size_t(V) * sizeof(E));
      if (row_loss) row_loss[t] = 0;
      continue;
    }
    const float largest = row_max(z, V), z_target = to_float(z[target[t]]);
    double sum = 0;
    for (int64_t j = 0; j < V; j += kTile) {
      const int64_t m = tile_size(V - j);
      const float* a = in_tile(z + j, zs, m);
      float tile_sum = 0;
      for (int64_t i = 0; i < m; ++i) {
        os[i] = vector_exp(a[i] - largest);
        tile_sum += os[i];
      }
      if constexpr (std::is_same_v<E, float>) std::memcpy(dz + j, os, size_t(m) * sizeof(float));
      sum += tile_sum;
    }
    const float k = float(scale / sum);
    for (int64_t j = 0; j < V; j += kTile) {
      const int64_t m = tile_size(V - j);
      if constexpr (std::is_same_v<E, float>) {
        for (int64_t i = 0; i < m; ++i) dz[j + i] *= k;
      } else {
        const float* a = in_tile(z + j, zs, m);
        for (int64_t i = 0; i < m; ++i) os[i] = vector_exp(a[i] - largest) * k;
        if (target[t] >= j && target[t] < j + m) os[target[t] - j] -= float(scale);
        flush(os, dz + j, m);
      }
    }
    if constexpr (std::is_same_v<E, float>) dz[target[t]] -= float(scale);
    const double row = double(largest) + std::log(sum) - double(z_target);
    total += row;
    if (row_loss) row_loss[t] = row;
  }
  if (!row_loss) *loss += total * scale;
}
template <class E>
DISTSETUP_KERNEL void cross_entropy_shaped(const E* z, const int64_t* target, E* dz, double* row_loss, int64_t T, int64_t V,
                                           double scale, float multiplier, float soft_cap) {
  const auto shaped = [&](E logit) {
    const float s = to_float(logit) * multiplier;
    return soft_cap > 0 ? soft_cap * std::tanh(s / soft_cap) : s;
  };
  for (int64_t t = 0; t < T; ++t, z += V, dz += V) {
    if (target[t] < 0) {
      std::memset(static_cast<void*>(dz), 0, size_t(V) * sizeof(E));
      row_loss[t] = 0;
      continue;
    }
    float largest = -3.0e38f;
    for (int64_t j = 0; j < V; ++j) largest = std::max(largest, shaped(z[j]));
    double sum = 0;
    for (int64_t j = 0; j < V; ++j) sum += std::exp(shaped(z[j]) - largest);
    row_loss[t] = double(largest) + std::log(sum) - double(shaped(z[target[t]]));
    const float k = float(scale / sum);
    for (int64_t j = 0; j < V; ++j) {
      const float s = shaped(z[j]), u = soft_cap > 0 ? s / soft_cap : 0;
      const float gradient = std::exp(s - largest) * k - (j == target[t] ? float(scale) : 0);
      from_float(gradient * (1 - u * u) * multiplier, dz + j);
    }
  }
}
template <class E>
DISTSETUP_KERNEL void cross_entropy_local(const E* z, const int64_t* target, float* stats, int64_t T, int64_t V, VocabularyRange range,
                                          LogitShape shape) {
  alignas(64) float zs[kTile];
  const int64_t n = range.end - range.begin;
  for (int64_t t = 0; t < T; ++t, z += V, stats += kLossStats) {
    float largest = n > 0 ? -3.0e38f : -std::numeric_limits<float>::infinity();
    double sum = 0;
    for (int64_t j = 0; j < n; j += kTile) {
      const int64_t m = tile_size(n - j);
      const float* a = shaped_tile(z + j, zs, m, shape);
      const float before = largest;
      for (int64_t i = 0; i < m; ++i) largest = a[i] > largest ? a[i] : largest;
      sum *= std::exp(double(before) - double(largest));  // Milakov and Gimelshein, arXiv 1805.02867
      float tile_sum = 0;
      for (int64_t i = 0; i < m; ++i) tile_sum += vector_exp(a[i] - largest);
      sum += tile_sum;
    }
    const bool is_here = target[t] >= range.begin && target[t] < range.end;
    stats[0] = largest;
    stats[1] = float(sum);
    stats[2] = is_here ? shaped(to_float(z[target[t] - range.begin]), shape) : 0;
  }
}

template <class E>
DISTSETUP_KERNEL void cross_entropy_finish(const E* z, const int64_t* target, const float* all_stats, int64_t size,
                                           int64_t member_stride, E* dz, double* row_loss, int64_t T, int64_t V, double scale,
                                           VocabularyRange range, LogitShape shape) {
  alignas(64) float zs[kTile], os[kTile];
  const int64_t n = range.end - range.begin;
  for (int64_t t = 0; t < T; ++t, z += V, dz += V) {
    const int64_t num_zeros = target[t] < 0 ? V : V - n;
    std::memset(static_cast<void*>(dz + V - num_zeros), 0, size_t(num_zeros) * sizeof(E));
    row_loss[t] = 0;
    if (target[t] < 0) continue;
    const WholeRow row = whole_row(all_stats + t * kLossStats, size, member_stride);
    row_loss[t] = double(row.largest) + std::log(row.sum) - row.target;
    const float k = float(scale / row.sum);
    for (int64_t j = 0; j < n; j += kTile) {
      const int64_t m = tile_size(n - j), right = target[t] - range.begin - j;
      const float* a = shaped_tile(z + j, zs, m, shape);
      for (int64_t i = 0; i < m; ++i) os[i] = vector_exp(a[i] - row.largest) * k;
      if (right >= 0 && right < m) os[right] -= float(scale);
      for (int64_t i = 0; i < m && !is_plain(shape); ++i) {
        const float u = shape.soft_cap > 0 ? a[i] / shape.soft_cap : 0;
        os[i] *= (1 - u * u) * shape.multiplier;
      }
      put(os, dz + j, m);
    }
  }
}
double target_logp(const float* stats, int64_t size, int64_t member_stride) {
  const WholeRow row = whole_row(stats, size, member_stride);
  return row.target - double(row.largest) - std::log(row.sum);
}

#define DISTSETUP_INSTANTIATE(E)                                                                                                      \
  template void cross_entropy_local(const E*, const int64_t*, float*, int64_t, int64_t, VocabularyRange, LogitShape);                 \
  template void cross_entropy_finish(const E*, const int64_t*, const float*, int64_t, int64_t, E*, double*, int64_t, int64_t, double, \
                                     VocabularyRange, LogitShape);
DISTSETUP_INSTANTIATE(float)
DISTSETUP_INSTANTIATE(Bf16)
DISTSETUP_INSTANTIATE(F16)
#undef DISTSETUP_INSTANTIATE

template void cross_entropy_shaped(const float*, const int64_t*, float*, double*, int64_t, int64_t, double, float, float);
template void cross_entropy_shaped(const Bf16*, const int64_t*, Bf16*, double*, int64_t, int64_t, double, float, float);
template void cross_entropy_shaped(const F16*, const int64_t*, F16*, double*, int64_t, int64_t, double, float, float);

template void cross_entropy(const float*, const int64_t*, float*, double*, int64_t, int64_t, double, double*);
template void cross_entropy(const Bf16*, const int64_t*, Bf16*, double*, int64_t, int64_t, double, double*);
template void cross_entropy(const F16*, const int64_t*, F16*, double*, int64_t, int64_t, double, double*);

}  // namespace distsetup::cpu
