// What the kernels of this folder share: element types, launches, and sums in a fixed order. Included by one .cu file each.
#pragma once
#include "runtime/kernels/cuda/kernels.h"

#ifndef DISTSETUP_CUDA_EMULATED  // tests/support/cuda_emulation.h runs these very kernels on the CPU
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#endif

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace distsetup::cuda {
namespace {

using Bf16 = __nv_bfloat16;
using F16 = __half;
constexpr int kBlock = 256;
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float load(const float* p) { return *p; }
__device__ inline float load(const Bf16* p) { return __bfloat162float(*p); }
__device__ inline void store(float* p, float v) { *p = v; }
__device__ inline void store(Bf16* p, float v) { *p = __float2bfloat16_rn(v); }
__device__ inline float load(const F16* p) { return __half2float(*p); }
__device__ inline void store(F16* p, float v) { *p = __float2half_rn(v); }

// The widest access of a thread, in bytes; how many elements that is.
constexpr int kPackBytes = 16;
template <class E>
constexpr int kPackSize = kPackBytes / sizeof(E);
constexpr int64_t size_of(Element element) { return element == Element::kF32 ? sizeof(float) : sizeof(Bf16); }
constexpr int64_t pack_size(Element element) { return kPackBytes / size_of(element); }

// N neighbouring elements in one access: kPackSize of them, or one.
template <class E, int N>
struct alignas(sizeof(E) * N) Pack {
  E v[N];
};
template <int N, class E>
__device__ inline void load_pack(const E* p, float* out) {
  const Pack<E, N> pack = *reinterpret_cast<const Pack<E, N>*>(p);
  for (int c = 0; c < N; ++c) out[c] = load(&pack.v[c]);
}
template <int N, class E>
__device__ inline void store_pack(E* p, const float* values) {
  Pack<E, N> pack;
  for (int c = 0; c < N; ++c) store(&pack.v[c], values[c]);
  *reinterpret_cast<Pack<E, N>*>(p) = pack;
}

void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA kernel ") + kernel + ": " + cudaGetErrorString(error));
}
[[maybe_unused]] unsigned grid(int64_t n, int64_t per_block) {
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
void with_type(Element element, const F& f) {
  if (element == Element::kBf16)
    f(static_cast<Bf16*>(nullptr));
  else if (element == Element::kF16)
    f(static_cast<F16*>(nullptr));
  else
    f(static_cast<float*>(nullptr));
}
// As with_type, and with the number of elements of an access: kPackSize where rows of `columns` elements and all pointers allow it,
// else one.
template <class F>
void with_pack(Element element, int64_t columns, std::initializer_list<const void*> pointers, const F& f) {
  bool aligned = columns % pack_size(element) == 0;
  for (const void* p : pointers) aligned = aligned && reinterpret_cast<uintptr_t>(p) % kPackBytes == 0;
  with_type(element, [&](auto* e) {
    if (aligned)
      f(e, std::integral_constant<int, kPackSize<std::remove_pointer_t<decltype(e)>>>());
    else
      f(e, std::integral_constant<int, 1>());
  });
}
#define DISTSETUP_ELEMENT(e) std::remove_pointer_t<decltype(e)>

// A gated activation of one row by one block: `gu` holds F gates, then the F values that they scale.
// m[j] = value(gate) · up
template <int N, class E, class Value>
__device__ inline void gate_row(const E* gu, E* m, int64_t F, const Value& value) {
  for (int64_t j = threadIdx.x * N; j < F; j += blockDim.x * N) {
    float g[N], u[N];
    load_pack<N>(gu + j, g);
    load_pack<N>(gu + F + j, u);
    for (int c = 0; c < N; ++c) g[c] = value(g[c]) * u[c];
    store_pack<N>(m + j, g);
  }
}
// gradients(d, g, u) reads m's gradient, a gate and the value that it scales; it leaves the gate's gradient in g, the value's in d.
template <int N, class E, class Gradients>
__device__ inline void gate_row_backward(const E* dm, const E* gu, E* dgu, int64_t F, const Gradients& gradients) {
  for (int64_t j = threadIdx.x * N; j < F; j += blockDim.x * N) {
    float d[N], g[N], u[N];
    load_pack<N>(dm + j, d);
    load_pack<N>(gu + j, g);
    load_pack<N>(gu + F + j, u);
    for (int c = 0; c < N; ++c) gradients(d[c], g[c], u[c]);
    store_pack<N>(dgu + j, g);
    store_pack<N>(dgu + F + j, d);
  }
}

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

// --- Column sums over T rows: the rows are split over blocks, whose sums lie in static memory and are added in order. One stream.

constexpr int kColumnsAtOnce = 16384, kRowLanes = 8, kMostSplits = 256;
constexpr int64_t kColumnParts = 32 * kColumnsAtOnce;  // of few columns rows are split more often
__device__ float column_parts[kColumnParts];

// Columns first ... first + num - 1 of term(row, column, out), which gives N columns. Block (x, y): 32 · N columns of rows part y.
template <int N, class Term>
__global__ void column_parts_kernel(Term term, int64_t T, int64_t first, int64_t num) {
  __shared__ float lanes[kRowLanes][kWarp * N];
  const int64_t at = (int64_t(blockIdx.x) * kWarp + threadIdx.x) * N, rows = (T + gridDim.y - 1) / gridDim.y,
                begin = blockIdx.y * rows;
  const int64_t end = begin + rows < T ? begin + rows : T;
  float sum[N] = {};
  if (at < num) {
    for (int64_t t = begin + threadIdx.y; t < end; t += kRowLanes) {
      float value[N];
      term.template columns<N>(t, first + at, value);
      for (int c = 0; c < N; ++c) sum[c] += value[c];
    }
  }
  for (int c = 0; c < N; ++c) lanes[threadIdx.y][threadIdx.x * N + c] = sum[c];
  __syncthreads();
  for (unsigned j = threadIdx.y * kWarp + threadIdx.x; j < kWarp * N; j += kRowLanes * kWarp) {
    const int64_t column = int64_t(blockIdx.x) * kWarp * N + j;
    float total = 0;
    for (int lane = 0; lane < kRowLanes; ++lane) total += lanes[lane][j];
    if (column < num) column_parts[blockIdx.y * num + column] = total;
  }
}
template <class E>
__global__ void column_finish_kernel(E* out, int64_t num, int splits, bool accumulate) {
  __shared__ float lanes[kRowLanes][kWarp];
  const int64_t j = int64_t(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  for (int s = int(threadIdx.y); s < splits && j < num; s += kRowLanes) sum += column_parts[s * num + j];
  lanes[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (j >= num || threadIdx.y != 0) return;
  float total = 0;
  for (int lane = 0; lane < kRowLanes; ++lane) total += lanes[lane][threadIdx.x];
  store(out + j, accumulate ? load(out + j) + total : total);
}
// out[j] = [out[j] +] the sum over rows of column j
template <int N, class E, class Term>
void column_sums(const Term& term, int64_t T, int64_t H, E* out, bool accumulate, StreamHandle stream) {
  const int64_t enough = (T + 63) / 64;
  for (int64_t first = 0; first < H; first += kColumnsAtOnce) {
    const int64_t num = H - first < kColumnsAtOnce ? H - first : kColumnsAtOnce, room = kColumnParts / num;
    const int64_t most = room < kMostSplits ? room : kMostSplits;
    const int splits = int(enough < most ? enough : most);
    launch(column_parts_kernel<N, Term>, dim3(grid(num, kWarp * N), unsigned(splits)), dim3(kWarp, kRowLanes), stream, term, T, first,
           num);
    launch(column_finish_kernel<E>, grid(num, kWarp), dim3(kWarp, kRowLanes), stream, out + first, num, splits, accumulate);
  }
}
// A norm's weight: dh times the normed x. `mean`: of a layer norm; nullptr: the norm subtracts none.
template <class E>
struct NormWeightTerm {
  const E *dh, *x;
  const float *mean, *r;
  int64_t H;
  template <int N>
  __device__ void columns(int64_t t, int64_t j, float* out) const {
    const float m = mean != nullptr ? mean[t] : 0.0f;
    float v[N];
    load_pack<N>(dh + t * H + j, out);
    load_pack<N>(x + t * H + j, v);
    for (int c = 0; c < N; ++c) out[c] *= (v[c] - m) * r[t];
  }
};
// Columns of dy itself.
template <class E>
struct RowTerm {
  const E* dy;
  int64_t H;
  template <int N>
  __device__ void columns(int64_t t, int64_t j, float* out) const {
    load_pack<N>(dy + t * H + j, out);
  }
};

}  // namespace
}  // namespace distsetup::cuda
