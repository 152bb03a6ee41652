// Mixtures of experts: which experts a token goes to and with which weights, and rows of tokens as rows of experts. Shapes, overlaps
// and rounding: kernels.h. Legend: T tokens, E experts, k of them per token, N = T · k rows of experts, H elements of a row.
#pragma once
#include <cstdint>

#include "runtime/kernels/router.h"

namespace distsetup::cpu {

// The k experts with the largest scores, the largest first; of equal ones the one with the lower number. bias may be null.
template <class E>
void route(const E* logits_TE, const E* bias_E, float* weights_Tk, int64_t* choice_Tk, int64_t T, const Router& router);
// dlogits = [before +] the gradient. before may be null; dlogits may be before.
template <class E>
void route_backward(const float* dweights_Tk, const E* logits_TE, const int64_t* choice_Tk, const E* before_TE, E* dlogits_TE,
                    int64_t T, const Router& router);

// above_E = [what is there +] how many of the N choices are each expert's, above N / E.
template <class E>
void count_above_share(const int64_t* choice_N, E* above_E, int64_t N, int64_t num_experts, bool accumulate);

// order[i]: which of the N choices is row i, expert by expert, each expert's in order; place: the other way round; starts[e]: first
// row of expert e, starts[E]: how many there are. An expert takes the first `most` of its choices: place is -1 for the others, and
// order for what is left of R rows.
void sort_experts(const int64_t* choice_N, int64_t* order_R, int64_t* place_N, int64_t* starts, int64_t N, int64_t num_experts,
                  int64_t most, int64_t R);

// Rows [begin, end) of y: the token's row of each. A row without a choice stays as it is, a choice without a row adds nothing.
template <class E>
void permute(const E* x_TH, const int64_t* order_N, E* y_NH, int64_t begin, int64_t end, int64_t H, int64_t k);
// Tokens [begin, end) of y: [addend +] the sum of the token's rows in fp32, in the order of experts. addend may be null, or y.
template <class E>
void unpermute(const E* rows_NH, const int64_t* place_N, const E* addend_TH, E* y_TH, int64_t begin, int64_t end, int64_t H,
               int64_t k);

// y = x · factor; y may be x.
template <class E>
void scale_row(const E* x, float factor, E* y, int64_t n);
template <class E>
float dot(const E* a, const E* b, int64_t n);

// Adds to sums[0 .. E) how often each expert was chosen and to sums[E .. 2E) its probabilities (softmax over all experts).
template <class E>
void count_routes(const E* logits_TE, const int64_t* choice_Tk, double* sums_2E, int64_t T, int64_t num_experts, int64_t k);
// The load-balancing loss of what count_routes has summed: factor · E · Σ share of choices · mean probability.
double balance_loss(const double* sums_2E, int64_t num_experts, int64_t k, double factor);
// dlogits = [before +] its gradient. before may be null; dlogits may be before.
template <class E>
void balance_backward(const E* logits_TE, const double* sums_2E, const E* before_TE, E* dlogits_TE, int64_t T, int64_t num_experts,
                      int64_t k, double factor);

// The z-loss: factor / T · Σ (log Σ exp of a row)².
template <class E>
double router_z_loss(const E* logits_TE, int64_t T, int64_t num_experts, double factor);
// dlogits = [before +] the gradient of rows that are some of those of T = `of` tokens. before may be null; dlogits may be before.
template <class E>
void router_z_loss_backward(const E* logits_TE, const E* before_TE, E* dlogits_TE, int64_t T, int64_t num_experts, int64_t of,
                            double factor);

}  // namespace distsetup::cpu
