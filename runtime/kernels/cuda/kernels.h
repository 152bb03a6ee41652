// The trainer's own kernels on CUDA, with the meaning of runtime/kernels/cpu/kernels.h: operand order, in-place rules and rounding are
// documented there. Data is what `element` says; sums are formed in fp32 (losses and norms in fp64).
// Deterministic: every sum has one order, fixed by the shape; there are no floating-point atomics. Nothing is allocated: partial sums
// lie in static device memory, so calls of bias_backward, rms_norm_backward, qk_norm_backward, cross_entropy[_finish] and
// sum_of_squares of one process must be on one stream.
#pragma once
#include <cstdint>

#include "plan/nf4.h"
#include "runtime/kernels/activation.h"
#include "runtime/kernels/clipped_gate.h"
#include "runtime/kernels/heads.h"
#include "runtime/kernels/latent_heads.h"
#include "runtime/kernels/positions.h"
#include "runtime/kernels/preference.h"
#include "runtime/kernels/router.h"
#include "runtime/kernels/updates.h"
#include "runtime/kernels/vocabulary.h"

struct CUstream_st;

namespace distsetup::cuda {

using StreamHandle = CUstream_st*;  // cudaStream_t

enum class Element { kF32, kBf16, kF16 };

inline constexpr int64_t kMaxHeadSize = 256;                // of qk_norm
inline constexpr int kMostExperts = 512, kMostChosen = 64;  // of a router, and for a token

// All throw std::runtime_error with the kernel's name when the launch fails.
void rms_norm(Element element, const void* x_TH, const void* w_H, void* h_TH, float* r_T, int64_t T, int64_t H, float epsilon,
              float weight_offset, StreamHandle stream);
void rms_norm_backward(Element element, const void* dh_TH, const void* x_TH, const float* r_T, const void* w_H,
                       const void* residual_TH, void* dx_TH, void* gw_H, int64_t T, int64_t H, float weight_offset, bool accumulate,
                       StreamHandle stream);
void qk_norm(Element element, const void* qkv, const void* wq_D, const void* wk_D, void* qk, float* r, int64_t T, Heads heads,
             float epsilon, float weight_offset, StreamHandle stream);
void qk_norm_backward(Element element, const void* dqk, const void* qkv, const float* r, const void* wq_D, const void* wk_D,
                      void* dqkv, void* gwq_D, void* gwk_D, int64_t T, Heads heads, float weight_offset, bool accumulate,
                      StreamHandle stream);
void rope(Element element, void* rows, const float* cos, const float* sin, int64_t T, int64_t S, int64_t num_heads, int64_t D,
          int64_t R, int64_t row_stride, float direction, const int64_t* positions_T, StreamHandle stream);
void swiglu(Element element, const void* gu_T2F, void* m_TF, int64_t T, int64_t F, StreamHandle stream);
void swiglu_backward(Element element, const void* dm_TF, const void* gu_T2F, void* dgu_T2F, int64_t T, int64_t F, StreamHandle stream);
void embedding_forward(Element element, const int64_t* ids_T, const void* w_VH, void* y_TH, int64_t T, int64_t H, float multiplier,
                       VocabularyRange range, StreamHandle stream);
void embedding_backward(Element element, const int64_t* ids_T, const void* dy_TH, void* gw_VH, int64_t T, int64_t V, int64_t H,
                        float multiplier, VocabularyRange range, bool accumulate, StreamHandle stream);
void bias_add(Element element, void* x_TH, const void* b_H, int64_t T, int64_t H, StreamHandle stream);
void bias_backward(Element element, const void* dy_TH, void* gb_H, int64_t T, int64_t H, bool accumulate, StreamHandle stream);
// kernels_latent.cu
void join_latent_heads(Element element, const void* q, const void* kv, const void* ckv, void* qkv, int64_t T, LatentHeads heads,
                       StreamHandle stream);
void split_latent_heads(Element element, const void* dqkv, void* dq, void* dkv, void* dckv, int64_t T, LatentHeads heads,
                        StreamHandle stream);
// Heads of `from` elements -> heads of `to`: the first ones of each, zeros where there are no more.
void resize_heads(Element element, const void* x, void* y, int64_t T, int64_t num, int64_t from, int64_t to, StreamHandle stream);
// kernels_families.cu
// Without a bias b and gb are null.
void layer_norm(Element element, const void* x_TH, const void* w_H, const void* b_H, void* h_TH, float* mean_T, float* r_T, int64_t T,
                int64_t H, float epsilon, float weight_offset, StreamHandle stream);
void layer_norm_backward(Element element, const void* dh_TH, const void* x_TH, const float* mean_T, const float* r_T, const void* w_H,
                         const void* residual_TH, void* dx_TH, void* gw_H, void* gb_H, int64_t T, int64_t H, float weight_offset,
                         bool accumulate, StreamHandle stream);
void qk_norm_wide(Element element, const void* qkv, const void* wq, const void* wk, void* qk, float* r_T2, int64_t T, Heads heads,
                  float epsilon, StreamHandle stream);
void qk_norm_wide_backward(Element element, const void* dqk, const void* qkv, const float* r_T2, const void* wq, const void* wk,
                           void* dqkv, void* gwq, void* gwk, int64_t T, Heads heads, bool accumulate, StreamHandle stream);
void add(Element element, const void* a, const void* b, void* c, int64_t n, StreamHandle stream);
void position_add(Element element, void* y_TH, const void* w_PH, int64_t T, const Positions& positions, int64_t H, int64_t first,
                  StreamHandle stream);
// At given positions (of documents); backward is embedding_backward of them.
void position_add_at(Element element, void* y_TH, const void* w_PH, const int64_t* positions_T, int64_t T, int64_t H,
                     StreamHandle stream);
void position_backward(Element element, const void* dy_TH, void* gw_PH, int64_t T, const Positions& positions, int64_t P, int64_t H,
                       int64_t first, bool accumulate, StreamHandle stream);
void activation(Element element, Activation f, const void* x, void* y, int64_t n, StreamHandle stream);
void activation_backward(Element element, Activation f, const void* dy, const void* x, void* dx, int64_t n, StreamHandle stream);
void gated_activation(Element element, Activation f, const void* gu_T2F, void* m_TF, int64_t T, int64_t F, StreamHandle stream);
void gated_activation_backward(Element element, Activation f, const void* dm_TF, const void* gu_T2F, void* dgu_T2F, int64_t T,
                               int64_t F, StreamHandle stream);
// kernels_loss.cu. scale: device memory.
void cross_entropy(Element element, const void* z_TV, const int64_t* target_T, void* dz_TV, double* loss, int64_t T, int64_t V,
                   const double* scale, float multiplier, float soft_cap, StreamHandle stream);
void cross_entropy_local(Element element, const void* z_TV, const int64_t* target_T, float* stats_T3, int64_t T, int64_t V,
                         VocabularyRange range, LogitShape shape, StreamHandle stream);
// Adds to loss, as cross_entropy does.
void cross_entropy_finish(Element element, const void* z_TV, const int64_t* target_T, const float* all_stats, int64_t size,
                          void* dz_TV, double* loss, int64_t T, int64_t V, const double* scale, VocabularyRange range,
                          LogitShape shape, StreamHandle stream);
// Of preference pairs (runtime/kernels/preference.h). logps_B2 of all `size` ranks of tp, and of `ranks` of cp; numbers are added to
// where `adds` says so.
void sequence_logps(const int64_t* target_T, const float* all_stats, int64_t size, double* logps_B2, int64_t T, int64_t B,
                    StreamHandle stream);
void reference_logps(const double* logps, int64_t B, int ranks, float* reference_B, StreamHandle stream);
void preference(const double* logps, const float* reference_B, const double* scale, PairLossShape shape, int64_t B, int ranks,
                bool adds, double* coefficients_B, double* numbers, float* policy_B, StreamHandle stream);
void logits_gradient(Element element, const void* z_TV, const int64_t* target_T, const float* all_stats, int64_t size,
                     const double* coefficients_B, int64_t B, void* dz_TV, int64_t T, int64_t V, VocabularyRange range,
                     LogitShape shape, StreamHandle stream);
// kernels_nf4.cu: the matrix of a record. The record begins at a multiple of 64 bytes.
void dequantize_nf4(Element element, const uint8_t* record, const Nf4Record& of, void* to, StreamHandle stream);
// kernels_router.cu; N = T · k choices. before and bias may be null.
void route(Element element, const void* logits_TE, const void* bias_E, float* weights_Tk, int64_t* choice_Tk, int64_t T,
           const Router& router, StreamHandle stream);
void route_backward(Element element, const float* dweights_Tk, const void* logits_TE, const int64_t* choice_Tk, const void* before_TE,
                    void* dlogits_TE, int64_t T, const Router& router, StreamHandle stream);
void count_above_share(Element element, const int64_t* choice_N, void* above_E, int64_t N, int64_t num_experts, bool accumulate,
                       StreamHandle stream);
// scale, of the loss-balancing factor: device memory. balance_loss adds to loss.
void count_routes(Element element, const void* logits_TE, const int64_t* choice_Tk, double* sums_2E, int64_t T, int64_t num_experts,
                  int64_t k, StreamHandle stream);
void sum_routes(const double* all_R2E, double* sums_2E, int64_t ranks, int64_t num_experts, StreamHandle stream);
void balance_loss(const double* sums_2E, const double* scale, double* loss, int64_t num_experts, int64_t k, double factor,
                  StreamHandle stream);
void balance_backward(Element element, const void* logits_TE, const double* sums_2E, const double* scale, const void* before_TE,
                      void* dlogits_TE, int64_t T, int64_t num_experts, int64_t k, double factor, StreamHandle stream);
// Adds to loss.
void router_z_loss(Element element, const void* logits_TE, const double* scale, double* loss, int64_t T, int64_t num_experts,
                   double factor, StreamHandle stream);
void router_z_loss_backward(Element element, const void* logits_TE, const double* scale, const void* before_TE, void* dlogits_TE,
                            int64_t T, int64_t num_experts, double factor, StreamHandle stream);
// kernels_experts.cu; N = T · k rows of experts, or fewer where these have a capacity. addend may be null.
void sort_experts(const int64_t* choice_N, int64_t* order_R, int64_t* place_N, int64_t* starts, int64_t N, int64_t num_experts,
                  int64_t most, int64_t R, StreamHandle stream);
void permute(Element element, const void* x_TH, const int64_t* order_N, void* y_NH, int64_t N, int64_t H, int64_t k,
             StreamHandle stream);
void unpermute(Element element, const void* rows_NH, const int64_t* place_N, const void* addend_TH, void* y_TH, int64_t T, int64_t H,
               int64_t k, StreamHandle stream);
// Which choice row i of experts is: order[i], or i where there is no order; rows from *num_rows on, where it is given, are none.
struct RowChoices {
  const int64_t *order = nullptr, *num_rows = nullptr;
};
// Rows of gated_activation times the weight of their choice, and back: dgu may be gu.
void gated_weighted(Element element, Activation f, const void* gu_N2F, const float* weights_Tk, RowChoices choices, void* m_NF,
                    int64_t N, int64_t F, StreamHandle stream);
void gated_weighted_backward(Element element, Activation f, const void* dm_NF, const void* gu_N2F, const float* weights_Tk,
                             RowChoices choices, void* dgu_N2F, float* dweights_Tk, int64_t N, int64_t F, StreamHandle stream);
// Rows of m times sigmoid(s); y may be m, dm may be d.
void sigmoid_rows(Element element, const void* m_TF, const void* s_T, void* y_TF, int64_t T, int64_t F, StreamHandle stream);
void sigmoid_rows_backward(Element element, const void* d_TF, const void* m_TF, const void* s_T, void* dm_TF, void* ds_T, int64_t T,
                           int64_t F, StreamHandle stream);
// kernels_sinks_biases.cu; meanings: runtime/kernels/cpu/sinks_biases.h. Log-sum-exps of B sequences of S tokens: [B, heads, S], and
// where sequences are cut into pieces so for each piece.
struct SumLayout {
  int64_t B = 0, S = 0, A = 0, pieces = 1;
};
// kernels_ring.cu. Some rows of each sequence of S: `length` of them, from `first` on, one sequence after the other.
struct SequenceRows {
  int64_t S = 0, first = 0, length = 0;
};
// What all queries have attended to before, in fp32, and what those of `part` attend to besides, as if to all of these keys at once:
// values weighted by their log-sum-exps, which of `part` lie as [B, heads, length]. before, with before_lse, or part may be null; att
// may be before, lse before_lse. result: kF32 or `element`, that of part.
void merge_attended(Element element, const float* before_TAD, const float* before_lse, const void* part, const float* part_lse,
                    SequenceRows of, Element result, void* att_TAD, float* lse, SumLayout layout, int64_t D, StreamHandle stream);
// out = before + part, rows of n; before may be null, out may be before.
void add_part(Element element, const float* before, int64_t before_stride, const void* part_n, SequenceRows of, Element result,
              void* out, int64_t out_stride, int64_t T, int64_t n, StreamHandle stream);
// kernels_sinks_biases.cu again
void head_sinks(Element element, void* att_TAD, float* lse, const void* sinks_A, SumLayout layout, int64_t D, StreamHandle stream);
void head_sinks_backward(Element element, const void* datt_TAD, const void* att_TAD, const float* lse, const void* sinks_A,
                         void* dsinks_A, SumLayout layout, int64_t D, bool accumulate, StreamHandle stream);
// starts and bias of num_experts experts; dbias of `all`, of which they are those from `first` on: of the others [dbias +] 0.
void grouped_bias_add(Element element, void* rows_Nn, const void* bias_En, const int64_t* starts, int64_t N, int64_t num_experts,
                      int64_t n, StreamHandle stream);
void grouped_bias_backward(Element element, const void* drows_Nn, const int64_t* starts, void* dbias_En, int64_t first,
                           int64_t num_experts, int64_t all, int64_t n, bool accumulate, StreamHandle stream);
void routed_bias_add(Element element, const void* x_Tn, const float* weights_Tk, const int64_t* choice_Tk, const void* bias_En,
                     void* y_Tn, int64_t T, int64_t n, int64_t k, StreamHandle stream);
// Adds to dweights.
void routed_bias_backward(Element element, const void* dy_Tn, const float* weights_Tk, const int64_t* choice_Tk, const void* bias_En,
                          float* dweights_Tk, void* dbias_En, int64_t T, int64_t n, int64_t k, int64_t num_experts, bool accumulate,
                          StreamHandle stream);
void clipped_swiglu(Element element, const void* gu_N2F, const float* weights, RowChoices choices, void* m_NF, int64_t N, int64_t F,
                    ClippedGate gate, StreamHandle stream);
void clipped_swiglu_backward(Element element, const void* dm_NF, const void* gu_N2F, const float* weights, RowChoices choices,
                             void* dgu_N2F, float* dweights, int64_t N, int64_t F, ClippedGate gate, StreamHandle stream);
// Of experts that `ranks` ranks share: starts of all of them -> those of the num_own experts from `first` on, among the rows that
// come; weights of choices -> weights of rows, and back.
void own_starts(const int64_t* all, int64_t* own, int64_t ranks, int64_t num_experts, int64_t first, int64_t num_own,
                StreamHandle stream);
void sort_weights(const float* weights_N, const int64_t* order_N, float* rows_N, int64_t N, StreamHandle stream);
void unsort_weights(const float* rows_N, const int64_t* order_N, float* weights_N, int64_t N, StreamHandle stream);
// to[i] = from[i] - less; and zeros for the `numel` elements of g of each expert that has no rows.
void to_int32(const int64_t* from, int64_t less, int32_t* to, int64_t n, StreamHandle stream);
void clear_idle(Element element, const int64_t* starts, void* g, int64_t numel, int64_t num_experts, StreamHandle stream);
// kernels.cu again
// To one of the 16-bit types.
void cast(Element to_element, const float* from, void* to, int64_t n, StreamHandle stream);
void sum_chunks(Element element, float* target, const void* own, const void* received, int64_t size, int64_t index,
                int64_t chunk_stride, int64_t n, bool accumulate, StreamHandle stream);
void sum_partials(Element element, const void* own, const void* received, const void* addend, void* target, int64_t size,
                  int64_t index, int64_t n, StreamHandle stream);
// *sum = [*sum +] Σ x²
void sum_of_squares(const float* x, int64_t n, double* sum, bool accumulate, StreamHandle stream);
// kernels_optimizer.cu
void adamw(const AdamWUpdate& update, StreamHandle stream);
void lion(const LionUpdate& update, StreamHandle stream);
void adamw_8bit(const AdamW8bitUpdate& update, StreamHandle stream);
// kernels_matrix_optimizers.cu
void adafactor(AdafactorPass pass, const AdafactorUpdate& update, StreamHandle stream);
void muon_momentum(const MuonMomentum& update, StreamHandle stream);
void decayed_step(const DecayedStep& update, StreamHandle stream);
void normalize(void* values, int64_t n, float* scratch, int num_parts, StreamHandle stream);

}  // namespace distsetup::cuda
