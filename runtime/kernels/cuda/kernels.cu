// See kernels.h; the loss: kernels_loss.cu. Few files: nvcc compiles each once per architecture.
// Legend: T rows, H row width, V vocabulary, D head size, F feed-forward width. One block per row unless said otherwise.
#include "runtime/kernels/cuda/partial_sums.cuh"

namespace distsetup::cuda {
namespace {

constexpr int kNumSplits = 64;  // parts of a column sum over very many rows

__device__ float partial_columns[2 * kNumSplits * kMaxHeadSize];

// --- norms

template <class E>
__global__ void norm_kernel(const E* x, const E* w, E* h, float* r, int64_t H, float epsilon, float offset) {
  const int64_t t = blockIdx.x;
  const E* row = x + t * H;
  float sum = 0;
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) sum += load(row + j) * load(row + j);
  const float scale = rsqrtf(block_sum(sum) / float(H) + epsilon);
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) store(h + t * H + j, load(row + j) * scale * (offset + load(w + j)));
  if (threadIdx.x == 0) r[t] = scale;
}

// dx may be dh or the residual: a thread reads what it overwrites before it does.
template <class E>
__global__ void norm_backward_kernel(const E* dh, const E* x, const float* r, const E* w, const E* residual, E* dx, int64_t H,
                                     float offset) {
  const int64_t at = int64_t(blockIdx.x) * H;
  const float scale = r[blockIdx.x];
  float sum = 0;
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) sum += load(dh + at + j) * load(x + at + j) * scale * (offset + load(w + j));
  const float k = block_sum(sum) / float(H) * scale * scale;
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x) {
    float v = load(dh + at + j) * (offset + load(w + j)) * scale - load(x + at + j) * k;
    if (residual != nullptr) v += load(residual + at + j);
    store(dx + at + j, v);
  }
}

template <class E>
__global__ void norm_weight_kernel(const E* dh, const E* x, const float* r, E* gw, int64_t T, int64_t H, bool accumulate) {
  column_sums(T, H, gw, accumulate, [=](int64_t t, int64_t j) { return load(dh + t * H + j) * load(x + t * H + j) * r[t]; });
}
template <class E>
__global__ void bias_backward_kernel(const E* dy, E* gb, int64_t T, int64_t H, bool accumulate) {
  column_sums(T, H, gb, accumulate, [=](int64_t t, int64_t j) { return load(dy + t * H + j); });
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
template <class E>
__global__ void head_norm_weight_parts(const E* dqk, const E* qkv, const float* r, int64_t T, Heads heads) {
  const bool is_k = blockIdx.y == 1;
  const int64_t n = heads.num_q + heads.num_kv, D = heads.size, count = is_k ? heads.num_kv : heads.num_q,
                first = is_k ? heads.num_q : 0;
  const int64_t rows = T * count, part = (rows + kNumSplits - 1) / kNumSplits, begin = blockIdx.x * part;
  const int64_t end = begin + part < rows ? begin + part : rows;
  for (int64_t j = threadIdx.x; j < D; j += blockDim.x) {
    float sum = 0;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t t = row / count, i = first + row % count, item = t * n + i;
      sum += load(dqk + item * D + j) * load(qkv + t * (heads.num_q + 2 * heads.num_kv) * D + i * D + j) * r[item];
    }
    partial_columns[(blockIdx.y * kNumSplits + blockIdx.x) * kMaxHeadSize + j] = sum;
  }
}
template <class E>
__global__ void head_norm_weight_sum(E* gwq, E* gwk, int64_t D, bool accumulate) {
  E* out = blockIdx.x == 1 ? gwk : gwq;
  for (int64_t j = threadIdx.x; j < D; j += blockDim.x) {
    float sum = 0;
    for (int s = 0; s < kNumSplits; ++s) sum += partial_columns[(blockIdx.x * kNumSplits + s) * kMaxHeadSize + j];
    store(out + j, accumulate ? load(out + j) + sum : sum);
  }
}

// --- elementwise

template <class E>
__global__ void bias_add_kernel(E* x, const E* b, int64_t n, int64_t H) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) store(x + i, load(x + i) + load(b + i % H));
}

template <class E>
__global__ void rope_kernel(E* rows, const float* cos, const float* sin, int64_t T, int64_t S, int64_t num_heads, int64_t D, int64_t R,
                            int64_t row_stride, float direction) {
  const int64_t half = R / 2, i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= T * num_heads * half) return;
  const int64_t j = i % half, head = i / half % num_heads, t = i / half / num_heads;
  E *first = rows + t * row_stride + head * D + j, *second = first + half;
  const float a = load(first), b = load(second), c = cos[t % S * half + j], s = sin[t % S * half + j] * direction;
  store(first, a * c - b * s);
  store(second, b * c + a * s);
}

template <class E>
__global__ void swiglu_kernel(const E* gu, E* m, int64_t T, int64_t F) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= T * F) return;
  const int64_t at = i / F * 2 * F + i % F;
  const float g = load(gu + at), u = load(gu + at + F);
  store(m + i, g / (1.0f + expf(-g)) * u);
}
template <class E>
__global__ void swiglu_backward_kernel(const E* dm, const E* gu, E* dgu, int64_t T, int64_t F) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= T * F) return;
  const int64_t at = i / F * 2 * F + i % F;
  const float g = load(gu + at), u = load(gu + at + F), s = 1.0f / (1.0f + expf(-g)), d = load(dm + i) * s;
  store(dgu + at, d * u * (1.0f + g * (1.0f - s)));
  store(dgu + at + F, d * g);
}

__global__ void cast_kernel(const float* from, Bf16* to, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) to[i] = __float2bfloat16_rn(from[i]);
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

// --- embedding

template <class E>
__global__ void embedding_kernel(const int64_t* ids, const E* w, E* y, int64_t H, float multiplier, VocabularyRange range) {
  const int64_t t = blockIdx.x, id = ids[t];
  const bool is_here = id >= range.begin && id < range.end;
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x)
    store(y + t * H + j, is_here ? load(w + (id - range.begin) * H + j) * multiplier : 0.0f);
}

// The block of a token that no earlier one equals adds up the rows of all that equal it, in order, and adds the sum to the gradient's
// row. Work is T² / 2 comparisons and as many row reads as there are tokens.
template <class E>
__global__ void embedding_backward_kernel(const int64_t* ids, const E* dy, E* gw, int64_t T, int64_t H, float multiplier,
                                          VocabularyRange range) {
  constexpr int kColumns = 8;  // a thread's, kBlock apart
  __shared__ int found;
  __shared__ bool equal[kBlock];
  const int64_t t = blockIdx.x, id = ids[t];
  if (id < range.begin || id >= range.end) return;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  bool earlier = false;
  for (int64_t s = threadIdx.x; s < t && !earlier; s += blockDim.x) earlier = ids[s] == id;
  if (earlier) found = 1;  // whoever writes, writes the same
  __syncthreads();
  if (found) return;
  for (int64_t first = 0; first < H; first += kColumns * kBlock) {
    float sum[kColumns] = {};
    for (int64_t s0 = t; s0 < T; s0 += kBlock) {
      __syncthreads();
      equal[threadIdx.x] = s0 + threadIdx.x < T && ids[s0 + threadIdx.x] == id;
      __syncthreads();
      for (int s = 0; s < kBlock; ++s) {
        if (!equal[s]) continue;
        for (int c = 0; c < kColumns; ++c) {
          const int64_t j = first + c * kBlock + threadIdx.x;
          if (j < H) sum[c] += multiplier * load(dy + (s0 + s) * H + j);
        }
      }
    }
    for (int c = 0; c < kColumns; ++c) {
      const int64_t j = first + c * kBlock + threadIdx.x;
      if (j < H) store(gw + (id - range.begin) * H + j, load(gw + (id - range.begin) * H + j) + sum[c]);
    }
  }
}

}  // namespace

void rms_norm(bool bf16, const void* x, const void* w, void* h, float* r, int64_t T, int64_t H, float epsilon, float offset,
              StreamHandle stream) {
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(norm_kernel<E>, unsigned(T), kBlock, stream, static_cast<const E*>(x), static_cast<const E*>(w), static_cast<E*>(h), r, H,
           epsilon, offset);
  });
  check_launch("rms_norm");
}

void rms_norm_backward(bool bf16, const void* dh, const void* x, const float* r, const void* w, const void* residual, void* dx,
                       void* gw, int64_t T, int64_t H, float offset, bool accumulate, StreamHandle stream) {
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    // Weights first: dx may take the place of dh.
    launch(norm_weight_kernel<E>, grid(H, kWarp), dim3(kWarp, kWarp), stream, static_cast<const E*>(dh), static_cast<const E*>(x), r,
           static_cast<E*>(gw), T, H, accumulate);
    launch(norm_backward_kernel<E>, unsigned(T), kBlock, stream, static_cast<const E*>(dh), static_cast<const E*>(x), r,
           static_cast<const E*>(w), static_cast<const E*>(residual), static_cast<E*>(dx), H, offset);
  });
  check_launch("rms_norm_backward");
}

void qk_norm(bool bf16, const void* qkv, const void* wq, const void* wk, void* qk, float* r, int64_t T, Heads heads, float epsilon,
             float offset, StreamHandle stream) {
  const int64_t items = T * (heads.num_q + heads.num_kv);
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(head_norm_kernel<E>, grid(items, kBlock / kWarp), kBlock, stream, static_cast<const E*>(qkv), static_cast<const E*>(wq),
           static_cast<const E*>(wk), static_cast<E*>(qk), r, T, heads, epsilon, offset);
  });
  check_launch("qk_norm");
}

void qk_norm_backward(bool bf16, const void* dqk, const void* qkv, const float* r, const void* wq, const void* wk, void* dqkv,
                      void* gwq, void* gwk, int64_t T, Heads heads, float offset, bool accumulate, StreamHandle stream) {
  const int64_t items = T * (heads.num_q + heads.num_kv);
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(head_norm_weight_parts<E>, dim3(kNumSplits, 2), kBlock, stream, static_cast<const E*>(dqk), static_cast<const E*>(qkv), r,
           T, heads);
    launch(head_norm_weight_sum<E>, 2, kBlock, stream, static_cast<E*>(gwq), static_cast<E*>(gwk), heads.size, accumulate);
    launch(head_norm_backward_kernel<E>, grid(items, kBlock / kWarp), kBlock, stream, static_cast<const E*>(dqk),
           static_cast<const E*>(qkv), r, static_cast<const E*>(wq), static_cast<const E*>(wk), static_cast<E*>(dqkv), T, heads,
           offset);
  });
  check_launch("qk_norm_backward");
}

void rope(bool bf16, void* rows, const float* cos, const float* sin, int64_t T, int64_t S, int64_t num_heads, int64_t D, int64_t R,
          int64_t row_stride, float direction, StreamHandle stream) {
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(rope_kernel<E>, grid(T * num_heads * (R / 2), kBlock), kBlock, stream, static_cast<E*>(rows), cos, sin, T, S, num_heads, D,
           R, row_stride, direction);
  });
  check_launch("rope");
}

void swiglu(bool bf16, const void* gu, void* m, int64_t T, int64_t F, StreamHandle stream) {
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(swiglu_kernel<E>, grid(T * F, kBlock), kBlock, stream, static_cast<const E*>(gu), static_cast<E*>(m), T, F);
  });
  check_launch("swiglu");
}

void swiglu_backward(bool bf16, const void* dm, const void* gu, void* dgu, int64_t T, int64_t F, StreamHandle stream) {
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(swiglu_backward_kernel<E>, grid(T * F, kBlock), kBlock, stream, static_cast<const E*>(dm), static_cast<const E*>(gu),
           static_cast<E*>(dgu), T, F);
  });
  check_launch("swiglu_backward");
}

void embedding_forward(bool bf16, const int64_t* ids, const void* w, void* y, int64_t T, int64_t H, float multiplier,
                       VocabularyRange range, StreamHandle stream) {
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(embedding_kernel<E>, unsigned(T), kBlock, stream, ids, static_cast<const E*>(w), static_cast<E*>(y), H, multiplier, range);
  });
  check_launch("embedding_forward");
}

void embedding_backward(bool bf16, const int64_t* ids, const void* dy, void* gw, int64_t T, int64_t V, int64_t H, float multiplier,
                        VocabularyRange range, bool accumulate, StreamHandle stream) {
  if (!accumulate) cudaMemsetAsync(gw, 0, size_t(V * H) * (bf16 ? sizeof(Bf16) : sizeof(float)), stream);
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(embedding_backward_kernel<E>, unsigned(T), kBlock, stream, ids, static_cast<const E*>(dy), static_cast<E*>(gw), T, H,
           multiplier, range);
  });
  check_launch("embedding_backward");
}

void bias_add(bool bf16, void* x, const void* b, int64_t T, int64_t H, StreamHandle stream) {
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(bias_add_kernel<E>, grid(T * H, kBlock), kBlock, stream, static_cast<E*>(x), static_cast<const E*>(b), T * H, H);
  });
  check_launch("bias_add");
}

void bias_backward(bool bf16, const void* dy, void* gb, int64_t T, int64_t H, bool accumulate, StreamHandle stream) {
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(bias_backward_kernel<E>, grid(H, kWarp), dim3(kWarp, kWarp), stream, static_cast<const E*>(dy), static_cast<E*>(gb), T, H,
           accumulate);
  });
  check_launch("bias_backward");
}

void cast_to_bf16(const float* from, void* to, int64_t n, StreamHandle stream) {
  if (n == 0) return;
  launch(cast_kernel, grid(n, kBlock), kBlock, stream, from, static_cast<Bf16*>(to), n);
  check_launch("cast");
}

void sum_chunks(bool bf16, float* target, const void* own, const void* received, int64_t size, int64_t index, int64_t chunk_stride,
                int64_t n, bool accumulate, StreamHandle stream) {
  if (n == 0) return;
  with_type(bf16, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(sum_chunks_kernel<E>, grid(n, kBlock), kBlock, stream, target, static_cast<const E*>(own), static_cast<const E*>(received),
           size, index, chunk_stride, n, accumulate);
  });
  check_launch("sum_chunks");
}

void sum_partials(bool bf16, const void* own, const void* received, const void* addend, void* target, int64_t size, int64_t index,
                  int64_t n, StreamHandle stream) {
  if (n == 0) return;
  with_type(bf16, [&](auto* e) {
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
