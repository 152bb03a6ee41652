// Where attention leaves the log-sum-exp of a token and a head (SumLayout in kernels.h).
#pragma once
#include "runtime/kernels/cuda/common.cuh"

namespace distsetup::cuda {
namespace {

__device__ inline int64_t sum_index(const SumLayout& s, int64_t token, int64_t head) {
  const int64_t sequence = token / s.S, position = token % s.S, length = s.S / s.pieces;
  return ((position / length * s.B + sequence) * s.A + head) * length + position % length;
}

}  // namespace
}  // namespace distsetup::cuda
