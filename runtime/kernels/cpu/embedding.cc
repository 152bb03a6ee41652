// Embedding rows: copied forward, added up backward. A 16-bit sum of many small rows would lose most of them, so all rows of one id
// are first added in fp32 tiles; which rows those are is found by comparing ids (T² / 2 comparisons, no memory).
#include "runtime/kernels/cpu/embedding.h"

#include <cstring>
#include <type_traits>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/isa.h"

namespace distsetup::cpu {
namespace {

DISTSETUP_KERNEL_INLINE bool is_in(VocabularyRange range, int64_t id) { return id >= range.begin && id < range.end; }
DISTSETUP_KERNEL_INLINE bool seen_before(const int64_t* ids, int64_t t) {
  bool found = false;
  for (int64_t s = 0; s < t; ++s) found |= ids[s] == ids[t];
  return found;
}

}  // namespace

template <class E>
DISTSETUP_KERNEL void embedding_forward(const int64_t* ids, const E* w, E* y, int64_t T, int64_t H, float multiplier,
                                        VocabularyRange range) {
  for (int64_t t = 0; t < T; ++t, y += H) {
    if (!is_in(range, ids[t])) {
      std::memset(static_cast<void*>(y), 0, size_t(H) * sizeof(E));
      continue;
    }
    std::memcpy(static_cast<void*>(y), w + (ids[t] - range.begin) * H, size_t(H) * sizeof(E));
    if (multiplier == 1) continue;
    for (int64_t j = 0; j < H; ++j) from_float(to_float(y[j]) * multiplier, y + j);
  }
}

DISTSETUP_KERNEL void embedding_backward_add(const int64_t* ids, const float* dy, float* gw, int64_t T, int64_t H, int64_t begin,
                                             int64_t end, float multiplier, VocabularyRange range) {
  for (int64_t t = 0; t < T; ++t) {
    if (!is_in(range, ids[t])) continue;
    float* g = gw + (ids[t] - range.begin) * H;
    const float* d = dy + t * H;
    if (multiplier == 1) {
      for (int64_t j = begin; j < end; ++j) g[j] += d[j];
    } else {
      for (int64_t j = begin; j < end; ++j) g[j] += multiplier * d[j];
    }
  }
}

template <class E>
DISTSETUP_KERNEL void embedding_backward_add(const int64_t* ids, const E* dy, E* gw, int64_t T, int64_t H, int64_t begin, int64_t end,
                                             float multiplier, VocabularyRange range) {
  alignas(64) float sum[kTile];
  for (int64_t t = begin; t < end; ++t) {
    if (!is_in(range, ids[t]) || seen_before(ids, t)) continue;
    E* g = gw + (ids[t] - range.begin) * H;
    for (int64_t j = 0; j < H; j += kTile) {
      const int64_t m = H - j < kTile ? H - j : kTile;
      for (int64_t i = 0; i < m; ++i) sum[i] = to_float(g[j + i]);
      for (int64_t s = t; s < T; ++s) {
        if (ids[s] != ids[t]) continue;
        const E* d = dy + s * H + j;
        for (int64_t i = 0; i < m; ++i) sum[i] += multiplier * to_float(d[i]);
      }
      for (int64_t i = 0; i < m; ++i) from_float(sum[i], g + j + i);
    }
  }
}

template <class E>
DISTSETUP_KERNEL void embedding_backward(const int64_t* ids, const E* dy, E* gw, int64_t T, int64_t V, int64_t H, Store store,
                                         float multiplier, VocabularyRange range) {
  if (store == Store::kSet) std::memset(static_cast<void*>(gw), 0, size_t(V * H) * sizeof(E));
  embedding_backward_add(ids, dy, gw, T, H, 0, std::is_same_v<E, float> ? H : T, multiplier, range);
}

template <class E>
DISTSETUP_KERNEL void position_add(E* y, const E* w, int64_t T, const Positions& positions, int64_t H, int64_t first) {
  for (int64_t t = 0; t < T; ++t, y += H) {
    const E* row = w + positions.at((first + t) % positions.rows) * H;
    for (int64_t j = 0; j < H; ++j) from_float(to_float(y[j]) + to_float(row[j]), y + j);
  }
}

template <class E>
DISTSETUP_KERNEL void position_backward(const E* dy, E* gw, int64_t T, const Positions& positions, int64_t H, int64_t begin,
                                        int64_t end, Store store, int64_t first) {
  alignas(64) float sum[kTile];
  const int64_t S = positions.rows;
  for (int64_t p = begin; p < end; ++p) {
    const int64_t own = positions.row_of(p), row = own < 0 ? T : (own + S - first % S) % S;  // the first of this position
    E* g = gw + p * H;
    for (int64_t j = 0; j < H; j += kTile) {
      const int64_t m = H - j < kTile ? H - j : kTile;
      for (int64_t i = 0; i < m; ++i) sum[i] = store == Store::kAdd ? to_float(g[j + i]) : 0;
      for (int64_t t = row; t < T; t += S)
        for (int64_t i = 0; i < m; ++i) sum[i] += to_float(dy[t * H + j + i]);
      for (int64_t i = 0; i < m; ++i) from_float(sum[i], g + j + i);
    }
  }
}

#define DISTSETUP_INSTANTIATE(E)                                                                                            \
  template void embedding_forward(const int64_t*, const E*, E*, int64_t, int64_t, float, VocabularyRange);                  \
  template void embedding_backward(const int64_t*, const E*, E*, int64_t, int64_t, int64_t, Store, float, VocabularyRange); \
  template void position_add(E*, const E*, int64_t, const Positions&, int64_t, int64_t);                                    \
  template void position_backward(const E*, E*, int64_t, const Positions&, int64_t, int64_t, int64_t, Store, int64_t);
DISTSETUP_INSTANTIATE(float)
DISTSETUP_INSTANTIATE(Bf16)
DISTSETUP_INSTANTIATE(F16)
#undef DISTSETUP_INSTANTIATE
template void embedding_backward_add(const int64_t*, const Bf16*, Bf16*, int64_t, int64_t, int64_t, int64_t, float, VocabularyRange);
template void embedding_backward_add(const int64_t*, const F16*, F16*, int64_t, int64_t, int64_t, int64_t, float, VocabularyRange);

}  // namespace distsetup::cpu
