// Norms over rows and over heads, and the biases of rows.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

#include "runtime/kernels/cpu/store.h"
#include "runtime/kernels/heads.h"

namespace distsetup::cpu {

struct RmsNorm {  // and of layer norm
  float epsilon = 0;
  float weight_offset = 0;  // added to the weight (Gemma: 1)
};

// h = x · r · (offset + w) with r = 1 / sqrt(mean(x²) + epsilon). Source: Zhang and Sennrich, arXiv 1910.07467.
template <class E>
void rms_norm(const E* x_TH, const E* w_H, E* h_TH, float* r_T, int64_t T, int64_t H, RmsNorm norm);
// dx = [residual +] r · (dh · w) - x · r³ · sum(dh · w · x) / H;  gw = sum over T of dh · x · r. residual may be null. ws_H: scratch.
template <class E>
void rms_norm_backward(const E* dh_TH, const E* x_TH, const float* r_T, const E* w_H, const E* residual_TH, E* dx_TH, E* gw_H,
                       float* ws_H, int64_t T, int64_t H, float weight_offset, Store store);
// Its two halves, for several threads: columns begin .. end of gw, and rows of dx. Where dx is dh or x, the weights come first.
template <class E>
void rms_norm_backward_weight(const E* dh_TH, const E* x_TH, const float* r_T, E* gw_H, float* ws_H, int64_t T, int64_t H,
                              int64_t begin, int64_t end, Store store);
template <class E>
void rms_norm_backward_input(const E* dh_TH, const E* x_TH, const float* r_T, const E* w_H, const E* residual_TH, E* dx_TH, int64_t T,
                             int64_t H, float weight_offset);

// The same per head: q heads with weight wq, then k heads with wk, from rows of row_in elements into dense rows of (A + K) · D.
template <class E>
void qk_norm(const E* qkv, const E* wq_D, const E* wk_D, E* qk, float* r, int64_t T, Heads heads, RmsNorm norm);
// Writes the q and k columns of dqkv; its v columns stay.
template <class E>
void qk_norm_backward(const E* dqk, const E* qkv, const float* r, const E* wq_D, const E* wk_D, E* dqkv, E* gwq_D, E* gwk_D,
                      float* wsq_D, float* wsk_D, int64_t T, Heads heads, float weight_offset, Store store);
// Over all q heads of a token at once, and over all its k heads (OLMo 2): weights [A · D] and [K · D], r [T, 2], ws [(A + K) · D].
template <class E>
void qk_norm_wide(const E* qkv, const E* wq, const E* wk, E* qk, float* r_T2, int64_t T, Heads heads, RmsNorm norm);
template <class E>
void qk_norm_wide_backward(const E* dqk, const E* qkv, const float* r_T2, const E* wq, const E* wk, E* dqkv, E* gwq, E* gwk, float* ws,
                           int64_t T, Heads heads, float weight_offset, Store store);

// h = (x - mean) · r · (offset + w) + b with r = 1 / sqrt(variance + epsilon). Source: Ba et al., arXiv 1607.06450. Backward in two
// halves, as above; ws [2 · H]: scratch. Without a bias b and gb are null, and ws has H elements.
template <class E>
void layer_norm(const E* x_TH, const E* w_H, const E* b_H, E* h_TH, float* mean_T, float* r_T, int64_t T, int64_t H, RmsNorm norm);
template <class E>
void layer_norm_backward_weight(const E* dh_TH, const E* x_TH, const float* mean_T, const float* r_T, E* gw_H, E* gb_H, float* ws,
                                int64_t T, int64_t H, int64_t begin, int64_t end, Store store);
template <class E>
void layer_norm_backward_input(const E* dh_TH, const E* x_TH, const float* mean_T, const float* r_T, const E* w_H,
                               const E* residual_TH, E* dx_TH, int64_t T, int64_t H, float weight_offset);

template <class E>
void bias_add(E* x_TH, const E* b_H, int64_t T, int64_t H);
template <class E>
void bias_backward(const E* dy_TH, E* gb_H, float* ws_H, int64_t T, int64_t H, Store store);  // ws_H: scratch

}  // namespace distsetup::cpu
