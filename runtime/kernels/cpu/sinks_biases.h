// What GPT-OSS has beside other mixtures of experts (src/plan/sinks_biases.h). Shapes, overlaps and rounding: kernels.h; legend:
// experts.h. A heads, D elements of a head, n elements of a row.
#pragma once
#include <cstdint>

#include "runtime/kernels/clipped_gate.h"

namespace distsetup::cpu {

// Rows [begin, end): att times the share of the softmax that is not the sink's; lse with the sink.
template <class E>
void head_sinks(E* att_TAD, float* lse_TA, const E* sinks_A, int64_t begin, int64_t end, int64_t A, int64_t D);
// dsinks = [what is there +] the gradient of the sinks of heads [begin, end); att and lse with the sinks.
template <class E>
void head_sinks_backward(const E* datt_TAD, const E* att_TAD, const float* lse_TA, const E* sinks_A, E* dsinks_A, int64_t begin,
                         int64_t end, int64_t T, int64_t A, int64_t D, bool accumulate);

template <class E>
void add_bias_row(E* row, const E* bias, int64_t n);
// Columns [begin, end) of dbias = [what is there +] the sum of the rows from `first_row` to `last_row`.
template <class E>
void sum_rows(const E* rows, int64_t first_row, int64_t last_row, E* dbias, int64_t n, int64_t begin, int64_t end, bool accumulate);

// y = x + the weighted biases of the token's k experts, in their order; y may be x.
template <class E>
void routed_bias_row(const E* x, const float* weights_k, const int64_t* choice_k, const E* bias_En, E* y, int64_t n, int64_t k);
// Columns [begin, end) of dbias_En = [what is there +] Σ over tokens of weight · dy, for each expert.
template <class E>
void routed_bias_gradient(const E* dy_Tn, const float* weights_Tk, const int64_t* choice_Tk, E* dbias_En, int64_t T, int64_t n,
                          int64_t k, int64_t num_experts, int64_t begin, int64_t end, bool accumulate);

template <class E>
void clipped_swiglu_row(const E* gu_2F, float weight, E* m_F, int64_t F, ClippedGate gate);
// dgu may be gu. Returns the gradient of the weight.
template <class E>
float clipped_swiglu_row_backward(const E* dm_F, const E* gu_2F, float weight, E* dgu_2F, int64_t F, ClippedGate gate);

}  // namespace distsetup::cpu
