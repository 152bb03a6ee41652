// See kernels.h; the loss: kernels_loss.cu. Few files: nvcc compiles each once per architecture.
// Legend: T rows, H row width, V vocabulary, D head size, F feed-forward width. One block per row unless said otherwise.
#include "runtime/kernels/cuda/partial_sums.cuh"

namespace distsetup::cuda {
namespace {

// --- norms

template <class E, int N>
__global__ void norm_kernel(const E* x, const E* w, E* h, float* r, int64_t H, float epsilon, float offset) {
  const int64_t t = blockIdx.x;
  const E* row = x + t * H;
  float v[N], weight[N], sum = 0;
  for (int64_t j = threadIdx.x * N; j < H; j += blockDim.x * N) {
    load_pack<N>(row + j, v);
    for (int c = 0; c < N; ++c) sum += v[c] * v[c];
  }
  const float scale = rsqrtf(block_sum(sum) / float(H) + epsilon);
  for (int64_t j = threadIdx.x * N; j < H; j += blockDim.x * N) {
    load_pack<N>(row + j, v);
    load_pack<N>(w + j, weight);
    for (int c = 0; c < N; ++c) v[c] = v[c] * scale * (offset + weight[c]);
    store_pack<N>(h + t * H + j, v);
  }
  if (threadIdx.x == 0) r[t] = scale;
}

// dx may be dh or the residual: a thread reads what it overwrites before it does.
template <class E, int N>
__global__ void norm_backward_kernel(const E* dh, const E* x, const float* r, const E* w, const E* residual, E* dx, int64_t H,
                                     float offset) {
  const int64_t at = int64_t(blockIdx.x) * H;
  const float scale = r[blockIdx.x];
  float d[N], v[N], weight[N], sum = 0;
  for (int64_t j = threadIdx.x * N; j < H; j += blockDim.x * N) {
    load_pack<N>(dh + at + j, d);
    load_pack<N>(x + at + j, v);
    load_pack<N>(w + j, weight);
    for (int c = 0; c < N; ++c) sum += d[c] * v[c] * scale * (offset + weight[c]);
  }
  const float k = block_sum(sum) / float(H) * scale * scale;
  for (int64_t j = threadIdx.x * N; j < H; j += blockDim.x * N) {
    float rest[N] = {};
    load_pack<N>(dh + at + j, d);
    load_pack<N>(x + at + j, v);
    load_pack<N>(w + j, weight);
    if (residual != nullptr) load_pack<N>(residual + at + j, rest);
    for (int c = 0; c < N; ++c) {
      float value = d[c] * (offset + weight[c]) * scale - v[c] * k;
      if (residual != nullptr) value += rest[c];
      d[c] = value;
    }
    store_pack<N>(dx + at + j, d);
  }
}

// One warp per (row, head).
template <class E>
__global__ void head_norm_kernel(const E* qkv, const E* wq, const E* wk, E* qk, float* r, int64_t T, Heads heads, float epsilon,
                                 float offset) {
  const int64_t n = heads.num_q + heads.num_kv, D = heads.size, lane = threadIdx.x % kWarp;
  const int64_t item = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (item >= T * n) return;
  const int64_t t = item / n, i = item % n;
  const E* x = qkv + t * (heads.num_q + 2 * heads.num_kv) * D + i * D;
  const E* w = i < heads.num_q ? wq : wk;
  float sum = 0;
  for (int64_t j = lane; j < D; j += kWarp) sum += load(x + j) * load(x + j);
  const float scale = rsqrtf(warp_sum(sum) / float(D) + epsilon);
  for (int64_t j = lane; j < D; j += kWarp) store(qk + item * D + j, load(x + j) * scale * (offset + load(w + j)));
  if (lane == 0) r[item] = scale;
}
template <class E>
__global__ void head_norm_backward_kernel(const E* dqk, const E* qkv, const float* r, const E* wq, const E* wk, E* dqkv, int64_t T,
                                          Heads heads, float offset) {
  const int64_t n = heads.num_q + heads.num_kv, D = heads.size, lane = threadIdx.x % kWarp;
  const int64_t item = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (item >= T * n) return;
  const int64_t t = item / n, i = item % n, at = t * (heads.num_q + 2 * heads.num_kv) * D + i * D;
  const E *d = dqk + item * D, *x = qkv + at, *w = i < heads.num_q ? wq : wk;
  const float scale = r[item];
  float sum = 0;
  for (int64_t j = lane; j < D; j += kWarp) sum += load(d + j) * load(x + j) * scale * (offset + load(w + j));
  const float k = warp_sum(sum) / float(D) * scale * scale;
  for (int64_t j = lane; j < D; j += kWarp) store(dqkv + at + j, load(d + j) * (offset + load(w + j)) * scale - load(x + j) * k);
}
// Weight gradients of q (blockIdx.y 0) and k (1): T · heads rows and only D columns, so rows are split over blockIdx.x; thread j has
// column j. The second kernel adds the parts in order.
// A norm's weight, of rows that are heads of q or of k: those from `first` on, `count` of them in each token.
template <class E>
struct HeadNormWeightTerm {
  const E *dqk, *qkv;
  const float* r;
  Heads heads;
  int64_t first, count;
  template <int N>
  __device__ void columns(int64_t row, int64_t j, float* out) const {
    const int64_t t = row / count, i = first + row % count, item = t * (heads.num_q + heads.num_kv) + i, D = heads.size;
    float v[N];
    load_pack<N>(dqk + item * D + j, out);
    load_pack<N>(qkv + (t * (heads.num_q + 2 * heads.num_kv) + i) * D + j, v);
    for (int c = 0; c < N; ++c) out[c] *= v[c] * r[item];
  }
};

// --- elementwise

template <class E>
__global__ void bias_add_kernel(E* x, const E* b, int64_t n, int64_t H) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) store(x + i, load(x + i) + load(b + i % H));
}

// A block per row; a thread turns N pairs of one head.
template <class E, int N>
__global__ void rope_kernel(E* rows, const float* cos, const float* sin, int64_t S, int num_heads, int D, int half, int64_t row_stride,
                            float direction, const int64_t* positions) {
  const int64_t t = blockIdx.x, at = positions == nullptr ? t % S : positions[t];
  const int packs = half / N;
  const float *cos_row = cos + at * half, *sin_row = sin + at * half;
  for (int i = int(threadIdx.x); i < num_heads * packs; i += int(blockDim.x)) {
    const int j = i % packs * N;
    E *first = rows + t * row_stride + i / packs * D + j, *second = first + half;
    float a[N], b[N];
    load_pack<N>(first, a);
    load_pack<N>(second, b);
    for (int c = 0; c < N; ++c) {
      const float u = a[c], v = b[c], k = cos_row[j + c], s = sin_row[j + c] * direction;
      a[c] = u * k - v * s;
      b[c] = v * k + u * s;
    }
    store_pack<N>(first, a);
    store_pack<N>(second, b);
  }
}

// A block per row.
template <class E, int N>
__global__ void swiglu_kernel(const E* gu, E* m, int64_t F) {
  const int64_t t = blockIdx.x;
  gate_row<N>(gu + t * 2 * F, m + t * F, F, [](float g) { return g / (1.0f + expf(-g)); });
}
template <class E, int N>
__global__ void swiglu_backward_kernel(const E* dm, const E* gu, E* dgu, int64_t F) {
  const int64_t t = blockIdx.x;
  gate_row_backward<N>(dm + t * F, gu + t * 2 * F, dgu + t * 2 * F, F, [](float& d, float& g, float u) {
    const float s = 1.0f / (1.0f + expf(-g)), ds = d * s;
    d = ds * g;
    g = ds * u * (1.0f + g * (1.0f - s));
  });
}

// N elements are cast to fp32 or from it: how many of the fp32 ones one access takes.
template <int N>
constexpr int kFloats = N < kPackSize<float> ? N : kPackSize<float>;
template <class E, int N>
__global__ void cast_kernel(const float* from, E* to, int64_t n) {
  const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i >= n) return;
  float v[N];
  for (int c = 0; c < N; c += kFloats<N>) load_pack<kFloats<N>>(from + i + c, v + c);
  store_pack<N>(to + i, v);
}
// A gradient that nobody shares, into fp32.
template <class E, int N>
__global__ void take_kernel(float* target, const E* own, int64_t n, bool accumulate) {
  const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (i >= n) return;
  float v[N], before[N] = {};
  load_pack<N>(own + i, v);
  for (int c = 0; c < N; c += kFloats<N>) {
    if (accumulate) load_pack<kFloats<N>>(target + i + c, before + c);
    for (int k = c; k < c + kFloats<N>; ++k) v[k] = accumulate ? before[k] + v[k] : v[k];
    store_pack<kFloats<N>>(target + i + c, v + c);
  }
}

// Element i of all members' chunks, added in the order of members.
template <class E>
__device__ float sum_of_members(const E* own, const E* received, int64_t size, int64_t index, int64_t stride, int64_t i) {
  float sum = 0;
  for (int64_t p = 0; p < size; ++p) {
    sum += p == index ? load(own + i) : load(received + ((p - index + size) % size - 1) * stride + i);
  }
  return sum;
}
template <class E>
__global__ void sum_chunks_kernel(float* target, const E* own, const E* received, int64_t size, int64_t index, int64_t stride,
                                  int64_t n, bool accumulate) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float sum = sum_of_members(own, received, size, index, stride, i);
  target[i] = accumulate ? target[i] + sum : sum;
}
template <class E>
__global__ void sum_partials_kernel(const E* own, const E* received, const E* addend, E* target, int64_t size, int64_t index,
                                    int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float sum = sum_of_members(own, received, size, index, n, i);
  store(target + i, addend != nullptr ? sum + load(addend + i) : sum);
}

__global__ void sum_of_squares_kernel(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    sum += double(x[i]) * double(x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial_sums[blockIdx.x] = sum;
}

}  // namespace

void rms_norm(Element element, const void* x, const void* w, void* h, float* r, int64_t T, int64_t H, float epsilon, float offset,
              StreamHandle stream) {
  with_pack(element, H, {x, w, h}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(norm_kernel<E, width()>, unsigned(T), kBlock, stream, static_cast<const E*>(x), static_cast<const E*>(w),
           static_cast<E*>(h), r, H, epsilon, offset);
  });
  check_launch("rms_norm");
}

void rms_norm_backward(Element element, const void* dh, const void* x, const float* r, const void* w, const void* residual, void* dx,
                       void* gw, int64_t T, int64_t H, float offset, bool accumulate, StreamHandle stream) {
  with_pack(element, H, {dh, x, w, residual, dx}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    // Weights first: dx may take the place of dh.
    const NormWeightTerm<E> term = {static_cast<const E*>(dh), static_cast<const E*>(x), nullptr, r, H};
    column_sums<width()>(term, T, H, static_cast<E*>(gw), accumulate, stream);
    launch(norm_backward_kernel<E, width()>, unsigned(T), kBlock, stream, static_cast<const E*>(dh), static_cast<const E*>(x), r,
           static_cast<const E*>(w), static_cast<const E*>(residual), static_cast<E*>(dx), H, offset);
  });
  check_launch("rms_norm_backward");
}

void qk_norm(Element element, const void* qkv, const void* wq, const void* wk, void* qk, float* r, int64_t T, Heads heads,
             float epsilon, float offset, StreamHandle stream) {
  const int64_t items = T * (heads.num_q + heads.num_kv);
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(head_norm_kernel<E>, grid(items, kBlock / kWarp), kBlock, stream, static_cast<const E*>(qkv), static_cast<const E*>(wq),
           static_cast<const E*>(wk), static_cast<E*>(qk), r, T, heads, epsilon, offset);
  });
  check_launch("qk_norm");
}

void qk_norm_backward(Element element, const void* dqk, const void* qkv, const float* r, const void* wq, const void* wk, void* dqkv,
                      void* gwq, void* gwk, int64_t T, Heads heads, float offset, bool accumulate, StreamHandle stream) {
  const int64_t items = T * (heads.num_q + heads.num_kv);
  with_pack(element, heads.size, {dqk, qkv}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    const HeadNormWeightTerm<E> q = {static_cast<const E*>(dqk), static_cast<const E*>(qkv), r, heads, 0, heads.num_q};
    HeadNormWeightTerm<E> k = q;
    k.first = heads.num_q, k.count = heads.num_kv;
    column_sums<width()>(q, T * q.count, heads.size, static_cast<E*>(gwq), accumulate, stream);
    column_sums<width()>(k, T * k.count, heads.size, static_cast<E*>(gwk), accumulate, stream);
    launch(head_norm_backward_kernel<E>, grid(items, kBlock / kWarp), kBlock, stream, static_cast<const E*>(dqk),
           static_cast<const E*>(qkv), r, static_cast<const E*>(wq), static_cast<const E*>(wk), static_cast<E*>(dqkv), T, heads,
           offset);
  });
  check_launch("qk_norm_backward");
}

void rope(Element element, void* rows, const float* cos, const float* sin, int64_t T, int64_t S, int64_t num_heads, int64_t D,
          int64_t R, int64_t row_stride, float direction, const int64_t* positions, StreamHandle stream) {
  const bool is_aligned = D % pack_size(element) == 0 && row_stride % pack_size(element) == 0;
  with_pack(element, is_aligned ? R / 2 : 1, {rows}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(rope_kernel<E, width()>, unsigned(T), kBlock, stream, static_cast<E*>(rows), cos, sin, S, int(num_heads), int(D),
           int(R / 2), row_stride, direction, positions);
  });
  check_launch("rope");
}

void swiglu(Element element, const void* gu, void* m, int64_t T, int64_t F, StreamHandle stream) {
  with_pack(element, F, {gu, m}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(swiglu_kernel<E, width()>, unsigned(T), kBlock, stream, static_cast<const E*>(gu), static_cast<E*>(m), F);
  });
  check_launch("swiglu");
}

void swiglu_backward(Element element, const void* dm, const void* gu, void* dgu, int64_t T, int64_t F, StreamHandle stream) {
  with_pack(element, F, {dm, gu, dgu}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(swiglu_backward_kernel<E, width()>, unsigned(T), kBlock, stream, static_cast<const E*>(dm), static_cast<const E*>(gu),
           static_cast<E*>(dgu), F);
  });
  check_launch("swiglu_backward");
}

void bias_add(Element element, void* x, const void* b, int64_t T, int64_t H, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(bias_add_kernel<E>, grid(T * H, kBlock), kBlock, stream, static_cast<E*>(x), static_cast<const E*>(b), T * H, H);
  });
  check_launch("bias_add");
}

void bias_backward(Element element, const void* dy, void* gb, int64_t T, int64_t H, bool accumulate, StreamHandle stream) {
  with_pack(element, H, {dy}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    column_sums<width()>(RowTerm<E>{static_cast<const E*>(dy), H}, T, H, static_cast<E*>(gb), accumulate, stream);
  });
  check_launch("bias_backward");
}

void cast(Element to_element, const float* from, void* to, int64_t n, StreamHandle stream) {
  if (n == 0) return;
  with_pack(to_element, n, {from, to}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    if constexpr (sizeof(E) == 2)
      launch(cast_kernel<E, width()>, grid(n, kBlock * width()), kBlock, stream, from, static_cast<E*>(to), n);
  });
  check_launch("cast");
}

void sum_chunks(Element element, float* target, const void* own, const void* received, int64_t size, int64_t index,
                int64_t chunk_stride, int64_t n, bool accumulate, StreamHandle stream) {
  if (n == 0) return;
  if (size == 1) {
    with_pack(element, n, {target, own}, [&](auto* e, auto width) {
      using E = DISTSETUP_ELEMENT(e);
      launch(take_kernel<E, width()>, grid(n, kBlock * width()), kBlock, stream, target, static_cast<const E*>(own), n, accumulate);
    });
    return check_launch("sum_chunks");
  }
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(sum_chunks_kernel<E>, grid(n, kBlock), kBlock, stream, target, static_cast<const E*>(own), static_cast<const E*>(received),
           size, index, chunk_stride, n, accumulate);
  });
  check_launch("sum_chunks");
}

void sum_partials(Element element, const void* own, const void* received, const void* addend, void* target, int64_t size,
                  int64_t index, int64_t n, StreamHandle stream) {
  if (n == 0) return;
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(sum_partials_kernel<E>, grid(n, kBlock), kBlock, stream, static_cast<const E*>(own), static_cast<const E*>(received),
           static_cast<const E*>(addend), static_cast<E*>(target), size, index, n);
  });
  check_launch("sum_partials");
}

void sum_of_squares(const float* x, int64_t n, double* sum, bool accumulate, StreamHandle stream) {
  const unsigned needed = grid(n, kBlock), blocks = needed < unsigned(kNumPartials) ? needed : unsigned(kNumPartials);
  launch(sum_of_squares_kernel, blocks, kBlock, stream, x, n);
  launch(finish_sum, 1, kNumPartials, stream, sum, int(blocks), static_cast<const double*>(nullptr), accumulate);
  check_launch("sum_of_squares");
}

}  // namespace distsetup::cuda
