// Kernels of rows of experts: rows of tokens sorted by expert and back, activations times a row's weight. See kernels.h; legend:
// runtime/kernels/cpu/experts.h.
#include "runtime/kernels/cuda/activation.cuh"
#include "runtime/kernels/cuda/choices.cuh"

namespace distsetup::cuda {
namespace {

// As it is once it has been stored.
template <class E>
__device__ inline float rounded(float v) {
  E stored;
  store(&stored, v);
  return load(&stored);
}

// --- order: a block for each expert

// Rows of the experts before this one, each of which takes no more than `most`; every thread gets it.
__device__ inline int64_t rows_before(const int64_t* choice, int64_t N, int64_t expert, int64_t most) {
  if (most >= N) return count_choices(choice, N, [expert](int64_t c) { return c < expert; });
  __shared__ int counts[kMostExperts];
  for (int64_t e = threadIdx.x; e < expert; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x)
    if (choice[i] < expert) atomicAdd(&counts[choice[i]], 1);
  __syncthreads();
  int64_t rows = 0;
  for (int64_t e = threadIdx.x; e < expert; e += blockDim.x) rows += counts[e] < most ? counts[e] : most;
  return block_sum(rows);
}

__global__ void sort_experts_kernel(const int64_t* choice, int64_t* order, int64_t* place, int64_t* starts, int64_t N, int64_t most,
                                    int64_t R) {
  __shared__ int of_warp[kWarp];
  const int64_t expert = blockIdx.x;
  const int64_t first = rows_before(choice, N, expert, most);
  int64_t next = first;
  if (threadIdx.x == 0) starts[expert] = first;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int64_t begin = 0; begin < N; begin += blockDim.x) {
    const int64_t i = begin + threadIdx.x;
    const bool is_mine = i < N && choice[i] == expert;
    const unsigned lanes = __ballot_sync(kAllLanes, is_mine);
    if (lane == 0) of_warp[warp] = __popc(lanes);
    __syncthreads();
    int before = __popc(lanes & ((1u << lane) - 1)), all = 0;
    for (unsigned w = 0; w < blockDim.x / kWarp; ++w) {
      before += w < warp ? of_warp[w] : 0;
      all += of_warp[w];
    }
    if (is_mine) {
      const int64_t row = next + before;
      const bool is_taken = row < first + most;
      place[i] = is_taken ? row : -1;
      if (is_taken) order[row] = i;
    }
    next += all;
    __syncthreads();  // of_warp is written again
  }
  if (expert + 1 < gridDim.x) return;
  const int64_t end = next < first + most ? next : first + most;
  if (threadIdx.x == 0) starts[gridDim.x] = end;
  for (int64_t i = end + threadIdx.x; i < R; i += blockDim.x) order[i] = -1;
}

// --- rows: a block for each

template <class E, int N>
__global__ void permute_kernel(const E* x, const int64_t* order, E* y, int64_t H, int64_t k) {
  const int64_t i = blockIdx.x, from = order[i] / k;
  if (order[i] < 0) return;
  for (int64_t j = threadIdx.x * N; j < H; j += blockDim.x * N)
    *reinterpret_cast<Pack<E, N>*>(y + i * H + j) = *reinterpret_cast<const Pack<E, N>*>(x + from * H + j);
}
template <class E, int N>
__global__ void unpermute_kernel(const E* rows, const int64_t* place, const E* addend, E* y, int64_t H, int64_t k) {
  __shared__ int64_t sorted[kMostChosen], num;
  const int64_t t = blockIdx.x;
  if (threadIdx.x == 0) {
    num = 0;
    for (int64_t j = 0; j < k; ++j) {  // by insertion: k is small
      const int64_t row = place[t * k + j];
      if (row < 0) continue;
      int64_t at = num++;
      for (; at > 0 && sorted[at - 1] > row; --at) sorted[at] = sorted[at - 1];
      sorted[at] = row;
    }
  }
  __syncthreads();
  for (int64_t j = threadIdx.x * N; j < H; j += blockDim.x * N) {
    float sum[N] = {}, v[N];
    for (int64_t n = 0; n < num; ++n) {
      load_pack<N>(rows + sorted[n] * H + j, v);
      for (int c = 0; c < N; ++c) sum[c] += v[c];
    }
    if (addend != nullptr) {
      load_pack<N>(addend + t * H + j, v);
      for (int c = 0; c < N; ++c) sum[c] += v[c];
    }
    store_pack<N>(y + t * H + j, sum);
  }
}

// Row i has the weight of choice order[i]. What is rounded on the CPU is rounded here.
template <class E, int N>
__global__ void gated_weighted_kernel(Activation f, const E* gu, const float* weights, RowChoices choices, E* m, int64_t F) {
  const int64_t i = blockIdx.x;
  if (!has_row(choices, i)) return;
  const float weight = weights[choice_of(choices, i)];
  gate_row<N>(gu + i * 2 * F, m + i * F, F, [f](float g) { return activation_at(f, g).value; });
  for (int64_t j = threadIdx.x * N; j < F; j += blockDim.x * N) {  // each thread reads what it has written
    float v[N];
    load_pack<N>(m + i * F + j, v);
    for (int c = 0; c < N; ++c) v[c] *= weight;
    store_pack<N>(m + i * F + j, v);
  }
}
// dgu may be gu.
template <class E, int N>
__global__ void gated_weighted_backward_kernel(Activation f, const E* dm, const E* gu, const float* weights, RowChoices choices,
                                               E* dgu, float* dweights, int64_t F) {
  const int64_t i = blockIdx.x;
  if (!has_row(choices, i)) return;
  const int64_t choice = choice_of(choices, i);
  const float weight = weights[choice];
  const E *d_row = dm + i * F, *gu_row = gu + i * 2 * F;
  float of_weight = 0;
  for (int64_t j = threadIdx.x * N; j < F; j += blockDim.x * N) {
    float d[N], g[N], u[N];
    load_pack<N>(d_row + j, d);
    load_pack<N>(gu_row + j, g);
    load_pack<N>(gu_row + F + j, u);
    for (int c = 0; c < N; ++c) of_weight += d[c] * rounded<E>(activation_at(f, g[c]).value * u[c]);
  }
  of_weight = block_sum(of_weight);
  if (threadIdx.x == 0) dweights[choice] = of_weight;
  gate_row_backward<N>(d_row, gu_row, dgu + i * 2 * F, F, [f, weight](float& d, float& g, float u) {
    d = rounded<E>(d * weight);
    gate_gradients(f, d, g, u);
  });
}

template <class E>
__device__ inline float sigmoid_of(const E* x) {
  return 1.0f / (1.0f + expf(-load(x)));
}
template <class E>
__global__ void sigmoid_rows_kernel(const E* m, const E* s, E* y, int64_t F) {
  const int64_t t = blockIdx.x;
  const float factor = sigmoid_of(s + t);
  for (int64_t j = threadIdx.x; j < F; j += blockDim.x) store(y + t * F + j, load(m + t * F + j) * factor);
}
template <class E>
__global__ void sigmoid_rows_backward_kernel(const E* d, const E* m, const E* s, E* dm, E* ds, int64_t F) {
  const int64_t t = blockIdx.x;
  const float factor = sigmoid_of(s + t);
  float dot = 0;
  for (int64_t j = threadIdx.x; j < F; j += blockDim.x) dot += load(d + t * F + j) * load(m + t * F + j);
  dot = block_sum(dot);
  for (int64_t j = threadIdx.x; j < F; j += blockDim.x) store(dm + t * F + j, load(d + t * F + j) * factor);
  if (threadIdx.x == 0) store(ds + t, dot * factor * (1 - factor));
}

// --- experts of several ranks

// One thread: an expert's rows are those that all ranks send.
__global__ void own_starts_kernel(const int64_t* all, int64_t* own, int64_t ranks, int64_t num_experts, int64_t first,
                                  int64_t num_own) {
  if (threadIdx.x != 0) return;
  own[0] = 0;
  for (int64_t e = 0; e < num_own; ++e) {
    own[e + 1] = own[e];
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t* starts = all + rank * (num_experts + 1) + first + e;
      own[e + 1] += starts[1] - starts[0];
    }
  }
}
__global__ void sort_weights_kernel(const float* weights, const int64_t* order, float* rows, int64_t N) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < N && order[i] >= 0) rows[i] = weights[order[i]];
}
__global__ void unsort_weights_kernel(const float* rows, const int64_t* order, float* weights, int64_t N) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < N && order[i] >= 0) weights[order[i]] = rows[i];
}

// --- products: where rows end, as int32; gradients of experts without rows

__global__ void to_int32_kernel(const int64_t* from, int64_t less, int32_t* to, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) to[i] = int32_t(from[i] - less);
}
template <class E>
__global__ void clear_idle_kernel(const int64_t* starts, E* g, int64_t numel) {
  const int64_t expert = blockIdx.y;
  if (starts[expert] != starts[expert + 1]) return;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < numel; i += int64_t(gridDim.x) * blockDim.x)
    store(g + expert * numel + i, 0.0f);
}

}  // namespace

#define DISTSETUP_IN(p) static_cast<const E*>(p)
#define DISTSETUP_OUT(p) static_cast<E*>(p)

void sort_experts(const int64_t* choice, int64_t* order, int64_t* place, int64_t* starts, int64_t N, int64_t num_experts, int64_t most,
                  int64_t R, StreamHandle stream) {
  launch(sort_experts_kernel, unsigned(num_experts), 2 * kBlock, stream, choice, order, place, starts, N, most, R);
  check_launch("sort_experts");
}
void permute(Element element, const void* x, const int64_t* order, void* y, int64_t N, int64_t H, int64_t k, StreamHandle stream) {
  with_pack(element, H, {x, y}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(permute_kernel<E, width()>, unsigned(N), kBlock, stream, DISTSETUP_IN(x), order, DISTSETUP_OUT(y), H, k);
  });
  check_launch("permute");
}
void unpermute(Element element, const void* rows, const int64_t* place, const void* addend, void* y, int64_t T, int64_t H, int64_t k,
               StreamHandle stream) {
  with_pack(element, H, {rows, addend, y}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(unpermute_kernel<E, width()>, unsigned(T), kBlock, stream, DISTSETUP_IN(rows), place, DISTSETUP_IN(addend),
           DISTSETUP_OUT(y), H, k);
  });
  check_launch("unpermute");
}
void gated_weighted(Element element, Activation f, const void* gu, const float* weights, RowChoices choices, void* m, int64_t N,
                    int64_t F, StreamHandle stream) {
  with_pack(element, F, {gu, m}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(gated_weighted_kernel<E, width()>, unsigned(N), kBlock, stream, f, DISTSETUP_IN(gu), weights, choices, DISTSETUP_OUT(m), F);
  });
  check_launch("gated_weighted");
}
void gated_weighted_backward(Element element, Activation f, const void* dm, const void* gu, const float* weights, RowChoices choices,
                             void* dgu, float* dweights, int64_t N, int64_t F, StreamHandle stream) {
  with_pack(element, F, {dm, gu, dgu}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(gated_weighted_backward_kernel<E, width()>, unsigned(N), kBlock, stream, f, DISTSETUP_IN(dm), DISTSETUP_IN(gu), weights,
           choices, DISTSETUP_OUT(dgu), dweights, F);
  });
  check_launch("gated_weighted_backward");
}
void sigmoid_rows(Element element, const void* m, const void* s, void* y, int64_t T, int64_t F, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(sigmoid_rows_kernel<E>, unsigned(T), kBlock, stream, DISTSETUP_IN(m), DISTSETUP_IN(s), DISTSETUP_OUT(y), F);
  });
  check_launch("sigmoid_rows");
}
void sigmoid_rows_backward(Element element, const void* d, const void* m, const void* s, void* dm, void* ds, int64_t T, int64_t F,
                           StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(sigmoid_rows_backward_kernel<E>, unsigned(T), kBlock, stream, DISTSETUP_IN(d), DISTSETUP_IN(m), DISTSETUP_IN(s),
           DISTSETUP_OUT(dm), DISTSETUP_OUT(ds), F);
  });
  check_launch("sigmoid_rows_backward");
}
void own_starts(const int64_t* all, int64_t* own, int64_t ranks, int64_t num_experts, int64_t first, int64_t num_own,
                StreamHandle stream) {
  launch(own_starts_kernel, 1, kWarp, stream, all, own, ranks, num_experts, first, num_own);
  check_launch("own_starts");
}
void sort_weights(const float* weights, const int64_t* order, float* rows, int64_t N, StreamHandle stream) {
  launch(sort_weights_kernel, grid(N, kBlock), kBlock, stream, weights, order, rows, N);
  check_launch("sort_weights");
}
void unsort_weights(const float* rows, const int64_t* order, float* weights, int64_t N, StreamHandle stream) {
  launch(unsort_weights_kernel, grid(N, kBlock), kBlock, stream, rows, order, weights, N);
  check_launch("unsort_weights");
}
void to_int32(const int64_t* from, int64_t less, int32_t* to, int64_t n, StreamHandle stream) {
  launch(to_int32_kernel, grid(n, kBlock), kBlock, stream, from, less, to, n);
  check_launch("to_int32");
}
void clear_idle(Element element, const int64_t* starts, void* g, int64_t numel, int64_t num_experts, StreamHandle stream) {
  constexpr int kBlocksEach = 16;
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(clear_idle_kernel<E>, dim3(kBlocksEach, unsigned(num_experts)), kBlock, stream, starts, DISTSETUP_OUT(g), numel);
  });
  check_launch("clear_idle");
}

#undef DISTSETUP_IN
#undef DISTSETUP_OUT

}  // namespace distsetup::cuda
