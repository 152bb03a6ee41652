// RMS norm over rows and over heads, layer norm. One row at a time: its sum, then its output. Weight gradients gather in an fp32 row
// that the caller owns and are rounded once at the end.
#include "runtime/kernels/cpu/norm.h"

#include <cmath>
#include <cstring>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/isa.h"

namespace distsetup::cpu {
namespace {

DISTSETUP_KERNEL_INLINE int64_t tile_size(int64_t left) { return left < kTile ? left : kTile; }

template <class E>
DISTSETUP_KERNEL_INLINE float norm_row(const E* x, const E* w, E* h, int64_t n, RmsNorm norm) {
  alignas(64) float xs[kTile], ws[kTile], hs[kTile];
  float sum = 0;
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = tile_size(n - j);
    const float* a = in_tile(x + j, xs, m);
    for (int64_t i = 0; i < m; ++i) sum += a[i] * a[i];
  }
  const float r = 1.0f / std::sqrt(sum / float(n) + norm.epsilon);
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = tile_size(n - j);
    const float *a = in_tile(x + j, xs, m), *b = in_tile(w + j, ws, m);
    float* c = out_tile(h + j, hs);
    for (int64_t i = 0; i < m; ++i) c[i] = a[i] * r * (norm.weight_offset + b[i]);
    flush(c, h + j, m);
  }
  return r;
}

// gw: fp32 row of weight gradients, added to; null: left out.
template <class E>
DISTSETUP_KERNEL_INLINE void norm_row_backward(const E* dh, const E* x, float r, const E* w, float offset, const E* residual, E* dx,
                                               float* __restrict gw, int64_t n) {
  alignas(64) float ds[kTile], xs[kTile], ws[kTile], rs[kTile], os[kTile];
  float sum = 0;
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = tile_size(n - j);
    const float *d = in_tile(dh + j, ds, m), *a = in_tile(x + j, xs, m), *b = in_tile(w + j, ws, m);
    if (gw) {
      float* g = gw + j;
      for (int64_t i = 0; i < m; ++i) {
        const float t = d[i] * a[i] * r;
        sum += t * (offset + b[i]);
        g[i] += t;
      }
    } else {
      for (int64_t i = 0; i < m; ++i) sum += d[i] * a[i] * r * (offset + b[i]);
    }
  }
  const float k = sum / float(n) * r * r;
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = tile_size(n - j);
    const float *d = in_tile(dh + j, ds, m), *a = in_tile(x + j, xs, m), *b = in_tile(w + j, ws, m);
    for (int64_t i = 0; i < m; ++i) os[i] = d[i] * (offset + b[i]) * r - a[i] * k;
    if (residual) {
      const float* e = in_tile(residual + j, rs, m);
      for (int64_t i = 0; i < m; ++i) os[i] += e[i];
    }
    put(os, dx + j, m);
  }
}

template <class E>
DISTSETUP_KERNEL_INLINE void store_row(const float* from, E* to, int64_t n, Store store) {
  if (store == Store::kAdd) {
    for (int64_t j = 0; j < n; ++j) from_float(to_float(to[j]) + from[j], to + j);
  } else {
    for (int64_t j = 0; j < n; ++j) from_float(from[j], to + j);
  }
}

}  // namespace

template <class E>
DISTSETUP_KERNEL void rms_norm(const E* x, const E* w, E* h, float* r, int64_t T, int64_t H, RmsNorm norm) {
  for (int64_t t = 0; t < T; ++t) r[t] = norm_row(x + t * H, w, h + t * H, H, norm);
}

template <class E>
DISTSETUP_KERNEL void rms_norm_backward(const E* dh, const E* x, const float* r, const E* w, const E* residual, E* dx, E* gw,
                                        float* ws, int64_t T, int64_t H, float offset, Store store) {
  std::memset(ws, 0, size_t(H) * sizeof(float));
  for (int64_t t = 0; t < T; ++t) {
    norm_row_backward(dh + t * H, x + t * H, r[t], w, offset, residual ? residual + t * H : nullptr, dx + t * H, ws, H);
  }
  store_row(ws, gw, H, store);
}

template <class E>
DISTSETUP_KERNEL void rms_norm_backward_weight(const E* dh, const E* x, const float* r, E* gw, float* ws, int64_t T, int64_t H,
                                               int64_t begin, int64_t end, Store store) {
  alignas(64) float ds[kTile], xs[kTile];
  for (int64_t j = begin; j < end; j += kTile) {
    const int64_t m = tile_size(end - j);
    float* sum = ws + j;
    std::memset(sum, 0, size_t(m) * sizeof(float));
    for (int64_t t = 0; t < T; ++t) {
      const float *d = in_tile(dh + t * H + j, ds, m), *a = in_tile(x + t * H + j, xs, m);
      for (int64_t i = 0; i < m; ++i) sum[i] += d[i] * a[i] * r[t];
    }
    store_row(sum, gw + j, m, store);
  }
}

template <class E>
DISTSETUP_KERNEL void rms_norm_backward_input(const E* dh, const E* x, const float* r, const E* w, const E* residual, E* dx, int64_t T,
                                              int64_t H, float offset) {
  for (int64_t t = 0; t < T; ++t)
    norm_row_backward<E>(dh + t * H, x + t * H, r[t], w, offset, residual ? residual + t * H : nullptr, dx + t * H, nullptr, H);
}

template <class E>
DISTSETUP_KERNEL void qk_norm(const E* qkv, const E* wq, const E* wk, E* qk, float* r, int64_t T, Heads heads, RmsNorm norm) {
  const int64_t D = heads.size, n = heads.num_q + heads.num_kv;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t i = 0; i < n; ++i) {
      r[t * n + i] = norm_row(qkv + t * heads.packed_row() + i * D, i < heads.num_q ? wq : wk, qk + t * heads.row() + i * D, D, norm);
    }
  }
}

template <class E>
DISTSETUP_KERNEL void qk_norm_backward(const E* dqk, const E* qkv, const float* r, const E* wq, const E* wk, E* dqkv, E* gwq, E* gwk,
                                       float* wsq, float* wsk, int64_t T, Heads heads, float offset, Store store) {
  const int64_t D = heads.size, n = heads.num_q + heads.num_kv;
  std::memset(wsq, 0, size_t(D) * sizeof(float));
  std::memset(wsk, 0, size_t(D) * sizeof(float));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t i = 0; i < n; ++i) {
      const bool is_q = i < heads.num_q;
      const int64_t at = t * heads.packed_row() + i * D;
      norm_row_backward<E>(dqk + t * heads.row() + i * D, qkv + at, r[t * n + i], is_q ? wq : wk, offset, nullptr, dqkv + at,
                           is_q ? wsq : wsk, D);
    }
  }
  store_row(wsq, gwq, D, store);
  store_row(wsk, gwk, D, store);
}

template <class E>
DISTSETUP_KERNEL void qk_norm_wide(const E* qkv, const E* wq, const E* wk, E* qk, float* r, int64_t T, Heads heads, RmsNorm norm) {
  const int64_t Q = heads.num_q * heads.size, K = heads.num_kv * heads.size;
  for (int64_t t = 0; t < T; ++t, qkv += heads.packed_row(), qk += heads.row()) {
    r[2 * t] = norm_row(qkv, wq, qk, Q, norm);
    r[2 * t + 1] = norm_row(qkv + Q, wk, qk + Q, K, norm);
  }
}

template <class E>
DISTSETUP_KERNEL void qk_norm_wide_backward(const E* dqk, const E* qkv, const float* r, const E* wq, const E* wk, E* dqkv, E* gwq,
                                            E* gwk, float* ws, int64_t T, Heads heads, float offset, Store store) {
  const int64_t Q = heads.num_q * heads.size, K = heads.num_kv * heads.size;
  std::memset(ws, 0, size_t(Q + K) * sizeof(float));
  for (int64_t t = 0; t < T; ++t, dqk += heads.row(), qkv += heads.packed_row(), dqkv += heads.packed_row()) {
    norm_row_backward<E>(dqk, qkv, r[2 * t], wq, offset, nullptr, dqkv, ws, Q);
    norm_row_backward<E>(dqk + Q, qkv + Q, r[2 * t + 1], wk, offset, nullptr, dqkv + Q, ws + Q, K);
  }
  store_row(ws, gwq, Q, store);
  store_row(ws + Q, gwk, K, store);
}

// dx = [residual +] r · (g - mean(g) - x̂ · mean(g · x̂)) with g = dh · w and x̂ = (x - mean) · r.
template <class E>
DISTSETUP_KERNEL void layer_norm(const E* x, const E* w, const E* b, E* h, float* mean, float* r, int64_t T, int64_t H, RmsNorm norm) {
  for (int64_t t = 0; t < T; ++t, x += H, h += H) {
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < H; ++j) sum += to_float(x[j]);
    const auto m = float(sum / double(H));
    for (int64_t j = 0; j < H; ++j) {
      const float d = to_float(x[j]) - m;
      squares += d * d;
    }
    mean[t] = m;
    r[t] = 1.0f / std::sqrt(float(squares / double(H)) + norm.epsilon);
    for (int64_t j = 0; j < H; ++j) {
      const float y = (to_float(x[j]) - m) * r[t] * (norm.weight_offset + to_float(w[j]));
      from_float(b ? y + to_float(b[j]) : y, h + j);
    }
  }
}

template <class E>
DISTSETUP_KERNEL void layer_norm_backward_weight(const E* dh, const E* x, const float* mean, const float* r, E* gw, E* gb, float* ws,
                                                 int64_t T, int64_t H, int64_t begin, int64_t end, Store store) {
  float *sw = ws, *sb = gb ? ws + H : nullptr;
  for (int64_t j = begin; j < end; ++j) sw[j] = 0;
  for (int64_t j = begin; sb && j < end; ++j) sb[j] = 0;
  for (int64_t t = 0; t < T; ++t, dh += H, x += H) {
    for (int64_t j = begin; j < end; ++j) {
      const float d = to_float(dh[j]);
      sw[j] += d * (to_float(x[j]) - mean[t]) * r[t];
      if (sb) sb[j] += d;
    }
  }
  store_row(sw + begin, gw + begin, end - begin, store);
  if (sb) store_row(sb + begin, gb + begin, end - begin, store);
}

template <class E>
DISTSETUP_KERNEL void layer_norm_backward_input(const E* dh, const E* x, const float* mean, const float* r, const E* w,
                                                const E* residual, E* dx, int64_t T, int64_t H, float offset) {
  for (int64_t t = 0; t < T; ++t, dh += H, x += H, dx += H) {
    double sum = 0, dot = 0;
    for (int64_t j = 0; j < H; ++j) {
      const float g = to_float(dh[j]) * (offset + to_float(w[j]));
      sum += g;
      dot += g * (to_float(x[j]) - mean[t]) * r[t];
    }
    const float a = float(sum / double(H)), k = float(dot / double(H));
    for (int64_t j = 0; j < H; ++j) {
      const float before = residual ? to_float(residual[t * H + j]) : 0.0f;
      const float g = to_float(dh[j]) * (offset + to_float(w[j])), y = (to_float(x[j]) - mean[t]) * r[t];
      from_float(before + r[t] * (g - a - y * k), dx + j);
    }
  }
}

template <class E>
DISTSETUP_KERNEL void bias_add(E* x, const E* b, int64_t T, int64_t H) {
  for (int64_t t = 0; t < T; ++t, x += H) {
    for (int64_t j = 0; j < H; j += kTile) {
      alignas(64) float xs[kTile], bs[kTile], os[kTile];
      const int64_t m = tile_size(H - j);
      const float *a = in_tile(x + j, xs, m), *c = in_tile(b + j, bs, m);
      for (int64_t i = 0; i < m; ++i) os[i] = a[i] + c[i];
      put(os, x + j, m);
    }
  }
}

template <class E>
DISTSETUP_KERNEL void bias_backward(const E* dy, E* gb, float* ws, int64_t T, int64_t H, Store store) {
  std::memset(ws, 0, size_t(H) * sizeof(float));
  for (int64_t t = 0; t < T; ++t, dy += H) {
    for (int64_t j = 0; j < H; ++j) ws[j] += to_float(dy[j]);
  }
  store_row(ws, gb, H, store);
}

#define DISTSETUP_INSTANTIATE(E)                                                                                                      \
  template void rms_norm(const E*, const E*, E*, float*, int64_t, int64_t, RmsNorm);                                                  \
  template void rms_norm_backward(const E*, const E*, const float*, const E*, const E*, E*, E*, float*, int64_t, int64_t, float,      \
                                  Store);                                                                                             \
  template void rms_norm_backward_weight(const E*, const E*, const float*, E*, float*, int64_t, int64_t, int64_t, int64_t, Store);    \
  template void rms_norm_backward_input(const E*, const E*, const float*, const E*, const E*, E*, int64_t, int64_t, float);           \
  template void qk_norm(const E*, const E*, const E*, E*, float*, int64_t, Heads, RmsNorm);                                           \
  template void qk_norm_backward(const E*, const E*, const float*, const E*, const E*, E*, E*, E*, float*, float*, int64_t, Heads,    \
                                 float, Store);                                                                                       \
  template void qk_norm_wide(const E*, const E*, const E*, E*, float*, int64_t, Heads, RmsNorm);                                      \
  template void qk_norm_wide_backward(const E*, const E*, const float*, const E*, const E*, E*, E*, E*, float*, int64_t, Heads,       \
                                      float, Store);                                                                                  \
  template void layer_norm(const E*, const E*, const E*, E*, float*, float*, int64_t, int64_t, RmsNorm);                              \
  template void layer_norm_backward_weight(const E*, const E*, const float*, const float*, E*, E*, float*, int64_t, int64_t, int64_t, \
                                           int64_t, Store);                                                                           \
  template void layer_norm_backward_input(const E*, const E*, const float*, const float*, const E*, const E*, E*, int64_t, int64_t,   \
                                          float);                                                                                     \
  template void bias_add(E*, const E*, int64_t, int64_t);                                                                             \
  template void bias_backward(const E*, E*, float*, int64_t, int64_t, Store);
DISTSETUP_INSTANTIATE(float)
DISTSETUP_INSTANTIATE(Bf16)
DISTSETUP_INSTANTIATE(F16)
#undef DISTSETUP_INSTANTIATE

}  // namespace distsetup::cpu
