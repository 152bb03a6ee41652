// Kernels of families beyond Llama's: layer norm, norms over all heads, GELU and its kin, learned positions. See kernels.h.
#include "runtime/kernels/cuda/activation.cuh"

namespace distsetup::cuda {
namespace {

// --- norms, one block per row

template <class E>
__global__ void layer_norm_kernel(const E* x, const E* w, const E* b, E* h, float* mean, float* r, int64_t H, float epsilon,
                                  float offset) {
  const int64_t t = blockIdx.x;
  const E* row = x + t * H;
  float sum = 0, squares = 0;
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) sum += load(row + j);
  const float m = block_sum(sum) / float(H);
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) squares += (load(row + j) - m) * (load(row + j) - m);
  const float scale = rsqrtf(block_sum(squares) / float(H) + epsilon);
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) {
    const float y = (load(row + j) - m) * scale * (offset + load(w + j));
    store(h + t * H + j, b != nullptr ? y + load(b + j) : y);
  }
  if (threadIdx.x != 0) return;
  mean[t] = m;
  r[t] = scale;
}
template <class E>
__global__ void layer_norm_backward_kernel(const E* dh, const E* x, const float* mean, const float* r, const E* w, const E* residual,
                                           E* dx, int64_t H, float offset) {
  const int64_t at = int64_t(blockIdx.x) * H;
  const float m = mean[blockIdx.x], scale = r[blockIdx.x];
  float sum = 0, dot = 0;
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) {
    const float g = load(dh + at + j) * (offset + load(w + j));
    sum += g;
    dot += g * (load(x + at + j) - m) * scale;
  }
  const float a = block_sum(sum) / float(H), k = block_sum(dot) / float(H);
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) {
    float v = scale * (load(dh + at + j) * (offset + load(w + j)) - a - (load(x + at + j) - m) * scale * k);
    if (residual != nullptr) v += load(residual + at + j);
    store(dx + at + j, v);
  }
}

// q (blockIdx.y 0) or k (1) of one row: all heads at once.
template <class E>
__global__ void wide_norm_kernel(const E* qkv, const E* wq, const E* wk, E* qk, float* r, Heads heads, float epsilon) {
  const bool is_k = blockIdx.y == 1;
  const int64_t t = blockIdx.x, first = is_k ? heads.num_q * heads.size : 0, H = (is_k ? heads.num_kv : heads.num_q) * heads.size;
  const E *x = qkv + t * (heads.num_q + 2 * heads.num_kv) * heads.size + first, *w = is_k ? wk : wq;
  E* out = qk + t * (heads.num_q + heads.num_kv) * heads.size + first;
  float sum = 0;
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) sum += load(x + j) * load(x + j);
  const float scale = rsqrtf(block_sum(sum) / float(H) + epsilon);
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) store(out + j, load(x + j) * scale * load(w + j));
  if (threadIdx.x == 0) r[2 * t + (is_k ? 1 : 0)] = scale;
}
template <class E>
__global__ void wide_norm_backward_kernel(const E* dqk, const E* qkv, const float* r, const E* wq, const E* wk, E* dqkv, Heads heads) {
  const bool is_k = blockIdx.y == 1;
  const int64_t t = blockIdx.x, first = is_k ? heads.num_q * heads.size : 0, H = (is_k ? heads.num_kv : heads.num_q) * heads.size;
  const int64_t at = t * (heads.num_q + 2 * heads.num_kv) * heads.size + first;
  const E *d = dqk + t * (heads.num_q + heads.num_kv) * heads.size + first, *x = qkv + at, *w = is_k ? wk : wq;
  const float scale = r[2 * t + (is_k ? 1 : 0)];
  float sum = 0;
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) sum += load(d + j) * load(x + j) * scale * load(w + j);
  const float k = block_sum(sum) / float(H) * scale * scale;
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) store(dqkv + at + j, load(d + j) * load(w + j) * scale - load(x + j) * k);
}
template <class E>
struct WideNormWeightTerm {
  const E *dqk, *qkv;  // from the first column of q or k on
  const float* r;      // of q or k
  int64_t row, packed;
  template <int N>
  __device__ void columns(int64_t t, int64_t j, float* out) const {
    float v[N];
    load_pack<N>(dqk + t * row + j, out);
    load_pack<N>(qkv + t * packed + j, v);
    for (int c = 0; c < N; ++c) out[c] *= v[c] * r[2 * t];
  }
};

// --- elementwise

template <class E>
__global__ void add_kernel(const E* a, const E* b, E* c, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) store(c + i, load(a + i) + load(b + i));
}
template <class E>
__global__ void position_add_kernel(E* y, const E* w, int64_t n, Positions positions, int64_t H, int64_t first) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) store(y + i, load(y + i) + load(w + positions.at((first + i / H) % positions.rows) * H + i % H));
}
template <class E>
__global__ void position_add_at_kernel(E* y, const E* w, const int64_t* positions, int64_t n, int64_t H) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) store(y + i, load(y + i) + load(w + positions[i / H] * H + i % H));
}
template <class E>
__global__ void position_backward_kernel(const E* dy, E* gw, int64_t T, Positions positions, int64_t n, int64_t H, int64_t first,
                                         bool accumulate) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int64_t own = positions.row_of(i / H), j = i % H, S = positions.rows;
  float sum = accumulate ? load(gw + i) : 0.0f;
  for (int64_t t = own < 0 ? T : (own + S - first % S) % S; t < T; t += S) sum += load(dy + t * H + j);
  store(gw + i, sum);
}

template <class E>
__global__ void activation_kernel(Activation f, const E* x, E* y, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) store(y + i, activation_at(f, load(x + i)).value);
}
template <class E>
__global__ void activation_backward_kernel(Activation f, const E* dy, const E* x, E* dx, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) store(dx + i, load(dy + i) * activation_at(f, load(x + i)).slope);
}
// A block per row.
template <class E, int N>
__global__ void gated_kernel(Activation f, const E* gu, E* m, int64_t F) {
  const int64_t t = blockIdx.x;
  gate_row<N>(gu + t * 2 * F, m + t * F, F, [f](float g) { return activation_at(f, g).value; });
}
template <class E, int N>
__global__ void gated_backward_kernel(Activation f, const E* dm, const E* gu, E* dgu, int64_t F) {
  const int64_t t = blockIdx.x;
  gate_row_backward<N>(dm + t * F, gu + t * 2 * F, dgu + t * 2 * F, F,
                       [f](float& d, float& g, float u) { gate_gradients(f, d, g, u); });
}

}  // namespace

#define DISTSETUP_IN(p) static_cast<const E*>(p)
#define DISTSETUP_OUT(p) static_cast<E*>(p)

void layer_norm(Element element, const void* x, const void* w, const void* b, void* h, float* mean, float* r, int64_t T, int64_t H,
                float epsilon, float weight_offset, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(layer_norm_kernel<E>, unsigned(T), kBlock, stream, DISTSETUP_IN(x), DISTSETUP_IN(w), DISTSETUP_IN(b), DISTSETUP_OUT(h),
           mean, r, H, epsilon, weight_offset);
  });
  check_launch("layer_norm");
}

void layer_norm_backward(Element element, const void* dh, const void* x, const float* mean, const float* r, const void* w,
                         const void* residual, void* dx, void* gw, void* gb, int64_t T, int64_t H, float weight_offset,
                         bool accumulate, StreamHandle stream) {
  with_pack(element, H, {dh, x}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    // Weights first: dx may take the place of dh.
    const NormWeightTerm<E> term = {DISTSETUP_IN(dh), DISTSETUP_IN(x), mean, r, H};
    column_sums<width()>(term, T, H, DISTSETUP_OUT(gw), accumulate, stream);
    if (gb != nullptr) column_sums<width()>(RowTerm<E>{DISTSETUP_IN(dh), H}, T, H, DISTSETUP_OUT(gb), accumulate, stream);
    launch(layer_norm_backward_kernel<E>, unsigned(T), kBlock, stream, DISTSETUP_IN(dh), DISTSETUP_IN(x), mean, r, DISTSETUP_IN(w),
           DISTSETUP_IN(residual), DISTSETUP_OUT(dx), H, weight_offset);
  });
  check_launch("layer_norm_backward");
}

void qk_norm_wide(Element element, const void* qkv, const void* wq, const void* wk, void* qk, float* r, int64_t T, Heads heads,
                  float epsilon, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(wide_norm_kernel<E>, dim3(unsigned(T), 2), kBlock, stream, DISTSETUP_IN(qkv), DISTSETUP_IN(wq), DISTSETUP_IN(wk),
           DISTSETUP_OUT(qk), r, heads, epsilon);
  });
  check_launch("qk_norm_wide");
}

void qk_norm_wide_backward(Element element, const void* dqk, const void* qkv, const float* r, const void* wq, const void* wk,
                           void* dqkv, void* gwq, void* gwk, int64_t T, Heads heads, bool accumulate, StreamHandle stream) {
  const int64_t Q = heads.num_q * heads.size, K = heads.num_kv * heads.size;
  with_pack(element, heads.size, {dqk, qkv}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    const WideNormWeightTerm<E> q = {DISTSETUP_IN(dqk), DISTSETUP_IN(qkv), r, heads.row(), heads.packed_row()};
    const WideNormWeightTerm<E> k = {q.dqk + Q, q.qkv + Q, r + 1, q.row, q.packed};
    column_sums<width()>(q, T, Q, DISTSETUP_OUT(gwq), accumulate, stream);
    column_sums<width()>(k, T, K, DISTSETUP_OUT(gwk), accumulate, stream);
    launch(wide_norm_backward_kernel<E>, dim3(unsigned(T), 2), kBlock, stream, DISTSETUP_IN(dqk), DISTSETUP_IN(qkv), r,
           DISTSETUP_IN(wq), DISTSETUP_IN(wk), DISTSETUP_OUT(dqkv), heads);
  });
  check_launch("qk_norm_wide_backward");
}

void add(Element element, const void* a, const void* b, void* c, int64_t n, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(add_kernel<E>, grid(n, kBlock), kBlock, stream, DISTSETUP_IN(a), DISTSETUP_IN(b), DISTSETUP_OUT(c), n);
  });
  check_launch("add");
}

void position_add(Element element, void* y, const void* w, int64_t T, const Positions& positions, int64_t H, int64_t first,
                  StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(position_add_kernel<E>, grid(T * H, kBlock), kBlock, stream, DISTSETUP_OUT(y), DISTSETUP_IN(w), T * H, positions, H, first);
  });
  check_launch("position_add");
}

void position_add_at(Element element, void* y, const void* w, const int64_t* positions, int64_t T, int64_t H, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(position_add_at_kernel<E>, grid(T * H, kBlock), kBlock, stream, DISTSETUP_OUT(y), DISTSETUP_IN(w), positions, T * H, H);
  });
  check_launch("position_add_at");
}

void position_backward(Element element, const void* dy, void* gw, int64_t T, const Positions& positions, int64_t P, int64_t H,
                       int64_t first, bool accumulate, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(position_backward_kernel<E>, grid(P * H, kBlock), kBlock, stream, DISTSETUP_IN(dy), DISTSETUP_OUT(gw), T, positions, P * H,
           H, first, accumulate);
  });
  check_launch("position_backward");
}

void activation(Element element, Activation f, const void* x, void* y, int64_t n, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(activation_kernel<E>, grid(n, kBlock), kBlock, stream, f, DISTSETUP_IN(x), DISTSETUP_OUT(y), n);
  });
  check_launch("activation");
}

void activation_backward(Element element, Activation f, const void* dy, const void* x, void* dx, int64_t n, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(activation_backward_kernel<E>, grid(n, kBlock), kBlock, stream, f, DISTSETUP_IN(dy), DISTSETUP_IN(x), DISTSETUP_OUT(dx), n);
  });
  check_launch("activation_backward");
}

void gated_activation(Element element, Activation f, const void* gu, void* m, int64_t T, int64_t F, StreamHandle stream) {
  with_pack(element, F, {gu, m}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(gated_kernel<E, width()>, unsigned(T), kBlock, stream, f, DISTSETUP_IN(gu), DISTSETUP_OUT(m), F);
  });
  check_launch("gated_activation");
}

void gated_activation_backward(Element element, Activation f, const void* dm, const void* gu, void* dgu, int64_t T, int64_t F,
                               StreamHandle stream) {
  with_pack(element, F, {dm, gu, dgu}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(gated_backward_kernel<E, width()>, unsigned(T), kBlock, stream, f, DISTSETUP_IN(dm), DISTSETUP_IN(gu), DISTSETUP_OUT(dgu),
           F);
  });
  check_launch("gated_activation_backward");
}

#undef DISTSETUP_OUT
#undef DISTSETUP_IN

}  // namespace distsetup::cuda
