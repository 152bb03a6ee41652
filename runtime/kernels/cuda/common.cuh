// What the kernels of this folder share: element types, launches, and sums in a fixed order. Included by one .cu file each.
#pragma once
#include "runtime/kernels/cuda/kernels.h"

#ifndef DISTSETUP_CUDA_EMULATED  // tests/support/cuda_emulation.h runs these very kernels on the CPU
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#endif

#include <stdexcept>
#include <string>
#include <type_traits>

namespace distsetup::cuda {
namespace {

using Bf16 = __nv_bfloat16;
constexpr int kBlock = 256;
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float load(const float* p) { return *p; }
__device__ inline float load(const Bf16* p) { return __bfloat162float(*p); }
__device__ inline void store(float* p, float v) { *p = v; }
__device__ inline void store(Bf16* p, float v) { *p = __float2bfloat16_rn(v); }

void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA kernel ") + kernel + ": " + cudaGetErrorString(error));
}
unsigned grid(int64_t n, int64_t per_block) {
  const int64_t blocks = (n + per_block - 1) / per_block;
  return unsigned(blocks < 1 ? 1 : blocks > 0x7fffffff ? 0x7fffffff : blocks);
}

#ifndef DISTSETUP_CUDA_EMULATED
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 blocks, dim3 threads, StreamHandle stream, A... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(static_cast<P>(arguments)...);
}
#endif

// Calls f with a null pointer of the element type.
template <class F>
void with_type(bool bf16, const F& f) {
  if (bf16)
    f(static_cast<Bf16*>(nullptr));
  else
    f(static_cast<float*>(nullptr));
}
#define DISTSETUP_ELEMENT(e) std::remove_pointer_t<decltype(e)>

// Sums and maxima of a warp and of a block, always in the same order; every thread gets the result.
template <class V>
__device__ V warp_sum(V v) {
  for (int d = kWarp / 2; d > 0; d /= 2) v += __shfl_xor_sync(kAllLanes, v, d);
  return v;
}
template <class V>
__device__ V block_sum(V v) {
  __shared__ V of_warp[kWarp];
  v = warp_sum(v);
  __syncthreads();  // of_warp may still be read from the call before
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = v;
  __syncthreads();
  V total = 0;
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) total += of_warp[w];
  return total;
}

// Column sums of f(t, j) over T rows: 32 columns a block, 32 row lanes, lanes added in order.
template <class E, class F>
__device__ void column_sums(int64_t T, int64_t H, E* out, bool accumulate, const F& f) {
  __shared__ float lanes[kWarp][kWarp + 1];
  const int64_t j = int64_t(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (j < H) {
    for (int64_t t = threadIdx.y; t < T; t += kWarp) sum += f(t, j);
  }
  lanes[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || j >= H) return;
  float total = 0;
  for (int i = 0; i < kWarp; ++i) total += lanes[i][threadIdx.x];
  store(out + j, accumulate ? load(out + j) + total : total);
}

}  // namespace
}  // namespace distsetup::cuda
