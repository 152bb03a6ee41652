// Choices of experts: counted by a block, and that of a row. Included by one .cu file each.
#pragma once
#include "runtime/kernels/cuda/common.cuh"

namespace distsetup::cuda {
namespace {

// How many of the N choices `counts` says yes to; every thread gets it.
template <class Counts>
__device__ int64_t count_choices(const int64_t* choice, int64_t N, const Counts& counts) {
  int64_t n = 0;
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) n += counts(choice[i]) ? 1 : 0;
  return block_sum(n);
}

__device__ inline bool has_row(const RowChoices& choices, int64_t row) {
  return (choices.num_rows == nullptr || row < *choices.num_rows) && (choices.order == nullptr || choices.order[row] >= 0);
}
__device__ inline int64_t choice_of(const RowChoices& choices, int64_t row) {
  return choices.order == nullptr ? row : choices.order[row];
}

}  // namespace
}  // namespace distsetup::cuda
