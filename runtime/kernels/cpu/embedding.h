// Rows of the embedding, and their gradients.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/store.h"

namespace distsetup::cpu {

template <class E>
void embedding_forward(const int64_t* ids_T, const E* w_VH, E* y_TH, int64_t T, int64_t H);
// kSet zeroes all V rows first. Rows of one id are summed in fp32 in the order of t, also for Bf16.
template <class E>
void embedding_backward(const int64_t* ids_T, const E* dy_TH, E* gw_VH, int64_t T, int64_t V, int64_t H, Store store);
// The same without kSet's zeroes, for several threads: fp32 takes columns begin .. end of all tokens, Bf16 the ids that are first seen
// at tokens begin .. end.
void embedding_backward_add(const int64_t* ids_T, const float* dy_TH, float* gw_VH, int64_t T, int64_t H, int64_t begin, int64_t end);
void embedding_backward_add(const int64_t* ids_T, const Bf16* dy_TH, Bf16* gw_VH, int64_t T, int64_t H, int64_t begin, int64_t end);

}  // namespace distsetup::cpu
