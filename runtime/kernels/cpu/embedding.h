// Rows of the embedding, and their gradients.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

#include "runtime/kernels/cpu/store.h"

namespace distsetup::cpu {

template <class E>
void embedding_forward(const int64_t* ids_T, const E* w_VH, E* y_TH, int64_t T, int64_t H);
// kSet zeroes all V rows first. Rows of one id are summed in fp32 in the order of t, also for Bf16.
template <class E>
void embedding_backward(const int64_t* ids_T, const E* dy_TH, E* gw_VH, int64_t T, int64_t V, int64_t H, Store store);

}  // namespace distsetup::cpu
