// Rows of the embeddings, and their gradients.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/store.h"
#include "runtime/kernels/positions.h"
#include "runtime/kernels/vocabulary.h"

namespace distsetup::cpu {

// Ids outside the range have no row in w: theirs in y are zero, and in the backward they add nothing.
template <class E>
void embedding_forward(const int64_t* ids_T, const E* w_VH, E* y_TH, int64_t T, int64_t H, float multiplier = 1,
                       VocabularyRange range = {});
// kSet zeroes all V rows first. Rows of one id are summed in fp32 in the order of t, also for 16-bit types.
template <class E>
void embedding_backward(const int64_t* ids_T, const E* dy_TH, E* gw_VH, int64_t T, int64_t V, int64_t H, Store store,
                        float multiplier = 1, VocabularyRange range = {});
// The same without kSet's zeroes, for several threads: fp32 takes columns begin .. end of all tokens, 16-bit types the ids that are
// first seen at tokens begin .. end.
void embedding_backward_add(const int64_t* ids_T, const float* dy_TH, float* gw_VH, int64_t T, int64_t H, int64_t begin, int64_t end,
                            float multiplier = 1, VocabularyRange range = {});
template <class E>
void embedding_backward_add(const int64_t* ids_T, const E* dy_TH, E* gw_VH, int64_t T, int64_t H, int64_t begin, int64_t end,
                            float multiplier = 1, VocabularyRange range = {});

// y += w[the position of row (first + t) mod S], S rows of each sequence: learned positions (GPT-2).
template <class E>
void position_add(E* y_TH, const E* w_PH, int64_t T, const Positions& positions, int64_t H, int64_t first = 0);
// Rows begin .. end of the P rows of gw: sums over the sequences in fp32; rows of other positions are zero. dy begins at row `first`.
template <class E>
void position_backward(const E* dy_TH, E* gw_PH, int64_t T, const Positions& positions, int64_t H, int64_t begin, int64_t end,
                       Store store, int64_t first = 0);

}  // namespace distsetup::cpu
