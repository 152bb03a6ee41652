// The trainer's own kernels on plain pointers: norms, RoPE, SwiGLU, loss, embedding, biases, casts and sums. GEMMs and attention are
// libtorch's (runtime/engine/ops_aten.cc). E is float or Bf16; sums are formed in fp32. No kernel allocates.
// Shapes: T rows (tokens), H row width, V vocabulary, S sequence length, D head size. Rows are dense unless a stride is given.
// `accumulate`: gradients of parameters add to what is there. dx may be the same memory as any input of its shape; other outputs may
// not overlap inputs.
// Left out: threads. These kernels are memory-bound and below 3 % of a step.
#pragma once
#include <cstdint>

#include "runtime/kernels/cpu/bf16.h"

namespace distsetup::cpu {

enum class Store { kSet, kAdd };

// h = x · r · w with r = 1 / sqrt(mean(x²) + epsilon). Source: Zhang and Sennrich, arXiv 1910.07467.
template <class E>
void rms_norm(const E* x_TH, const E* w_H, E* h_TH, float* r_T, int64_t T, int64_t H, float epsilon);
// dx = [residual +] r · (dh · w) - x · r³ · sum(dh · w · x) / H;  gw = sum over T of dh · x · r. residual may be null. ws_H: scratch.
template <class E>
void rms_norm_backward(const E* dh_TH, const E* x_TH, const float* r_T, const E* w_H, const E* residual_TH, E* dx_TH, E* gw_H,
                       float* ws_H, int64_t T, int64_t H, Store store);

// The same per head: q heads with weight wq, then k heads with wk, from rows of row_in elements into dense rows of (A + K) · D.
struct Heads {
  int64_t num_q = 0, num_kv = 0, size = 0;                            // A, K, D
  int64_t row() const { return (num_q + num_kv) * size; }             // q and k
  int64_t packed_row() const { return (num_q + 2 * num_kv) * size; }  // q, k and v
};
template <class E>
void qk_norm(const E* qkv, const E* wq_D, const E* wk_D, E* qk, float* r, int64_t T, Heads heads, float epsilon);
// Writes the q and k columns of dqkv; its v columns stay.
template <class E>
void qk_norm_backward(const E* dqk, const E* qkv, const float* r, const E* wq_D, const E* wk_D, E* dqkv, E* gwq_D, E* gwk_D,
                      float* wsq_D, float* wsk_D, int64_t T, Heads heads, Store store);

// Rotates the first num_heads heads of every row in place by the angle of the row's position t mod S; tables are [S, D / 2].
// Element j pairs with j + D / 2 (the convention of Hugging Face's Llama). direction -1 is the backward.
// Source: Su et al., arXiv 2104.09864.
template <class E>
void rope(E* rows, const float* cos, const float* sin, int64_t T, int64_t S, int64_t num_heads, int64_t D, int64_t row_stride,
          float direction);
void rope_tables(float* cos, float* sin, int64_t S, int64_t D, double base);

// gu rows are gate, then up: m = silu(gate) · up. dgu may be gu. Source: Shazeer, arXiv 2002.05202.
template <class E>
void swiglu(const E* gu_T2F, E* m_TF, int64_t T, int64_t F);
template <class E>
void swiglu_backward(const E* dm_TF, const E* gu_T2F, E* dgu_T2F, int64_t T, int64_t F);

// loss += scale · sum over rows of (log sum exp(z) - z[target]); dz = (softmax(z) - onehot(target)) · scale. A target of -1 adds
// nothing and its row of dz is zero. dz may be z.
template <class E>
void cross_entropy(const E* z_TV, const int64_t* target_T, E* dz_TV, double* loss, int64_t T, int64_t V, double scale);

template <class E>
void embedding_forward(const int64_t* ids_T, const E* w_VH, E* y_TH, int64_t T, int64_t H);
// kSet zeroes all V rows first. Rows of one id are summed in fp32 in the order of t, also for Bf16.
template <class E>
void embedding_backward(const int64_t* ids_T, const E* dy_TH, E* gw_VH, int64_t T, int64_t V, int64_t H, Store store);

template <class E>
void bias_add(E* x_TH, const E* b_H, int64_t T, int64_t H);
template <class E>
void bias_backward(const E* dy_TH, E* gb_H, float* ws_H, int64_t T, int64_t H, Store store);

// fp32 to the compute dtype.
void cast(const float* from, float* to, int64_t n);
void cast(const float* from, Bf16* to, int64_t n);

// The summing half of a reduce-scatter: target = [target +] sum over members p = 0 .. size - 1, ascending, of member p's contribution,
// which is `own` for p = index and else chunk (p - index + size) mod size - 1 of `received` (chunks lie chunk_stride elements apart).
// Only the first n elements of each are read.
template <class E>
void sum_chunks(float* target, const E* own, const E* received, int64_t size, int64_t index, int64_t chunk_stride, int64_t n,
                Store store);

double sum_of_squares(const float* x, int64_t n);

}  // namespace distsetup::cpu
