// Sums over many blocks in fp64: each block leaves its part in static device memory, one more block adds them up in order. Each file
// that includes this has parts of its own.
#pragma once
#include "runtime/kernels/cuda/common.cuh"

namespace distsetup::cuda {
namespace {

constexpr int kNumPartials = 1024;  // blocks at most

__device__ double partial_sums[kNumPartials];

__global__ void finish_sum(double* out, int num_partials, const double* scale, bool accumulate) {
  double sum = block_sum(threadIdx.x < unsigned(num_partials) ? partial_sums[threadIdx.x] : 0.0);
  if (threadIdx.x != 0) return;
  if (scale != nullptr) sum *= *scale;
  *out = accumulate ? *out + sum : sum;
}

}  // namespace
}  // namespace distsetup::cuda
