// Kernels of latent attention, a block for each token. See kernels.h; legend: runtime/kernels/cpu/latent.h.
#include "runtime/kernels/cuda/common.cuh"

namespace distsetup::cuda {
namespace {

// Where rotary element i of a head as attention reads it lies among those of a head as products write it; and the other way round.
__device__ inline int64_t of_pair(int64_t i, int64_t rot) { return i < rot / 2 ? 2 * i : 2 * i - rot + 1; }
__device__ inline int64_t apart(int64_t i, int64_t rot) { return i / 2 + i % 2 * (rot / 2); }

template <class E>
__global__ void join_latent_heads_kernel(const E* q, const E* kv, const E* ckv, E* qkv, LatentHeads s) {
  const int64_t t = blockIdx.x, size = s.plain + s.rot, row = s.num * size;
  q += t * row, kv += t * s.num * (s.plain + s.value), ckv += t * (s.latent + s.rot), qkv += t * 3 * row;
  for (int64_t j = threadIdx.x; j < row; j += blockDim.x) {
    const int64_t head = j / size, i = j % size;
    const E* const kv_head = kv + head * (s.plain + s.value);
    const int64_t pair = s.plain + of_pair(i, s.rot);
    qkv[j] = q[head * size + (i < s.rot ? pair : i - s.rot)];
    qkv[row + j] = i < s.rot ? ckv[s.latent + pair - s.plain] : kv_head[i - s.rot];
    if (i < s.value)
      qkv[2 * row + j] = kv_head[s.plain + i];
    else
      store(qkv + 2 * row + j, 0.0f);
  }
}
template <class E>
__global__ void split_latent_heads_kernel(const E* dqkv, E* dq, E* dkv, E* dckv, LatentHeads s) {
  const int64_t t = blockIdx.x, size = s.plain + s.rot, row = s.num * size, of_kv = s.plain + s.value;
  dqkv += t * 3 * row, dq += t * row, dkv += t * s.num * of_kv, dckv += t * (s.latent + s.rot);
  for (int64_t j = threadIdx.x; j < row; j += blockDim.x) {
    const int64_t head = j / size, i = j % size;
    dq[j] = dqkv[head * size + (i < s.plain ? s.rot + i : apart(i - s.plain, s.rot))];
  }
  for (int64_t j = threadIdx.x; j < s.num * of_kv; j += blockDim.x) {
    const int64_t head = j / of_kv, i = j % of_kv;
    dkv[j] = i < s.plain ? dqkv[row + head * size + s.rot + i] : dqkv[2 * row + head * size + i - s.plain];
  }
  for (int64_t i = threadIdx.x; i < s.rot; i += blockDim.x) {
    float sum = 0;
    for (int64_t head = 0; head < s.num; ++head) sum += load(dqkv + row + head * size + apart(i, s.rot));
    store(dckv + s.latent + i, sum);
  }
}
template <class E>
__global__ void resize_heads_kernel(const E* x, E* y, int64_t num, int64_t from, int64_t to) {
  const int64_t t = blockIdx.x;
  for (int64_t j = threadIdx.x; j < num * to; j += blockDim.x) {
    const int64_t head = j / to, i = j % to;
    if (i < from)
      y[t * num * to + j] = x[(t * num + head) * from + i];
    else
      store(y + t * num * to + j, 0.0f);
  }
}

}  // namespace

void join_latent_heads(Element element, const void* q, const void* kv, const void* ckv, void* qkv, int64_t T, LatentHeads heads,
                       StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(join_latent_heads_kernel<E>, unsigned(T), kBlock, stream, static_cast<const E*>(q), static_cast<const E*>(kv),
           static_cast<const E*>(ckv), static_cast<E*>(qkv), heads);
  });
  check_launch("latent_heads");
}
void split_latent_heads(Element element, const void* dqkv, void* dq, void* dkv, void* dckv, int64_t T, LatentHeads heads,
                        StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(split_latent_heads_kernel<E>, unsigned(T), kBlock, stream, static_cast<const E*>(dqkv), static_cast<E*>(dq),
           static_cast<E*>(dkv), static_cast<E*>(dckv), heads);
  });
  check_launch("latent_heads_backward");
}
void resize_heads(Element element, const void* x, void* y, int64_t T, int64_t num, int64_t from, int64_t to, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(resize_heads_kernel<E>, unsigned(T), kBlock, stream, static_cast<const E*>(x), static_cast<E*>(y), num, from, to);
  });
  check_launch("latent_values");
}

}  // namespace distsetup::cuda
