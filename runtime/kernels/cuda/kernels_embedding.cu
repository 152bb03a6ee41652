// Looking rows of the embedding up, and adding their gradients. See kernels.h.
#include "runtime/kernels/cuda/common.cuh"

namespace distsetup::cuda {
namespace {

template <class E>
__global__ void embedding_kernel(const int64_t* ids, const E* w, E* y, int64_t H, float multiplier, VocabularyRange range) {
  const int64_t t = blockIdx.x, id = ids[t];
  const bool is_here = id >= range.begin && id < range.end;
  for (int64_t j = threadIdx.x; j < H; j += blockDim.x)
    store(y + t * H + j, is_here ? load(w + (id - range.begin) * H + j) * multiplier : 0.0f);
}

// Block (t, y): the 32 · N columns y of a token that no earlier one equals. It adds up the rows of all tokens that equal it: match m
// belongs to warp m mod 8, each warp adds its rows in order, then the warps' sums are added in order. T² / 2 comparisons.
template <class E, int N>
__global__ void embedding_backward_kernel(const int64_t* ids, const E* dy, E* gw, int64_t T, int64_t H, float multiplier,
                                          VocabularyRange range) {
  constexpr int kWarps = kBlock / kWarp, kColumns = kWarp * N;
  __shared__ int found;
  __shared__ unsigned matches[kWarps];
  __shared__ float sums[kWarps][kColumns];
  const int64_t t = blockIdx.x, id = ids[t];
  if (id < range.begin || id >= range.end) return;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  bool earlier = false;
  for (int64_t s = threadIdx.x; s < t && !earlier; s += blockDim.x) earlier = ids[s] == id;
  if (earlier) found = 1;  // whoever writes, writes the same
  __syncthreads();
  if (found) return;
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  const int64_t first = int64_t(blockIdx.y) * kColumns, j = first + lane * N;
  float sum[N] = {};
  int match = 0;
  for (int64_t s0 = t; s0 < T; s0 += kBlock) {
    const unsigned mine = __ballot_sync(kAllLanes, s0 + threadIdx.x < T && ids[s0 + threadIdx.x] == id);
    __syncthreads();  // the matches before may still be read
    if (lane == 0) matches[warp] = mine;
    __syncthreads();
    for (int word = 0; word < kWarps; ++word) {
      for (unsigned bits = matches[word]; bits != 0; bits &= bits - 1) {
        if (match++ % kWarps != warp || j >= H) continue;
        float row[N];
        load_pack<N>(dy + (s0 + word * kWarp + __ffs(int(bits)) - 1) * H + j, row);
        for (int c = 0; c < N; ++c) sum[c] += multiplier * row[c];
      }
    }
  }
  for (int c = 0; c < N; ++c) sums[warp][lane * N + c] = sum[c];
  __syncthreads();
  for (int c = int(threadIdx.x); c < kColumns && first + c < H; c += kBlock) {
    E* out = gw + (id - range.begin) * H + first + c;
    float total = load(out);
    for (int w = 0; w < kWarps; ++w) total += sums[w][c];
    store(out, total);
  }
}

}  // namespace

void embedding_forward(Element element, const int64_t* ids, const void* w, void* y, int64_t T, int64_t H, float multiplier,
                       VocabularyRange range, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(embedding_kernel<E>, unsigned(T), kBlock, stream, ids, static_cast<const E*>(w), static_cast<E*>(y), H, multiplier, range);
  });
  check_launch("embedding_forward");
}

void embedding_backward(Element element, const int64_t* ids, const void* dy, void* gw, int64_t T, int64_t V, int64_t H,
                        float multiplier, VocabularyRange range, bool accumulate, StreamHandle stream) {
  if (!accumulate) cudaMemsetAsync(gw, 0, size_t(V * H) * size_of(element), stream);
  with_pack(element, H, {dy}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(embedding_backward_kernel<E, width()>, dim3(unsigned(T), grid(H, kWarp * width())), kBlock, stream, ids,
           static_cast<const E*>(dy), static_cast<E*>(gw), T, H, multiplier, range);
  });
  check_launch("embedding_backward");
}

}  // namespace distsetup::cuda
