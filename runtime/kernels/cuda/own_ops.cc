// Operand order is the program's (src/plan/kernel_table.cc).
#include "runtime/kernels/cuda/own_ops.h"

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "runtime/engine/ops_latent.h"

namespace distsetup::cuda {
namespace {

const void* in(const Call& c, int i) { return c.reads[size_t(i)].data; }
void* out(const Call& c, int i) { return c.writes[size_t(i)].data; }
template <class T>
const T* in_as(const Call& c, int i) {
  return static_cast<const T*>(in(c, i));
}
template <class T>
T* out_as(const Call& c, int i) {
  return static_cast<T*>(out(c, i));
}
float epsilon(const Call& c) { return float(c.attributes->epsilon); }
float weight_offset(const Call& c) { return float(c.attributes->weight_offset); }
float multiplier(const Call& c) { return float(c.attributes->multiplier); }
Heads heads_of(const Call& c) { return {c.context->a, c.context->kv, c.context->d}; }

// ids, p:wte -> y
void embed(const Call& c) {
  embedding_forward(element(c), in_as<int64_t>(c, 0), in(c, 1), out(c, 0), c.writes[0].dim(0), c.writes[0].dim(1), multiplier(c),
                    own_vocabulary(*c.context, c.reads[1].dim(0)), compute());
}
// ids, dy -> g:wte
void embed_backward(const Call& c) {
  embedding_backward(element(c), in_as<int64_t>(c, 0), in(c, 1), out(c, 0), c.reads[1].dim(0), c.writes[0].dim(0), c.writes[0].dim(1),
                     multiplier(c), own_vocabulary(*c.context, c.writes[0].dim(0)), c.accumulate, compute());
}
// x, p:n -> h, r
void norm(const Call& c) {
  rms_norm(element(c), in(c, 0), in(c, 1), out(c, 0), out_as<float>(c, 1), c.reads[0].dim(0), c.reads[0].dim(1), epsilon(c),
           weight_offset(c), compute());
}
// dh, x, r, p:n[, dy] -> dx, g:n, ws
void norm_backward(const Call& c) {
  rms_norm_backward(element(c), in(c, 0), in(c, 1), in_as<float>(c, 2), in(c, 3), c.reads.size() > 4 ? in(c, 4) : nullptr, out(c, 0),
                    out(c, 1), c.reads[0].dim(0), c.reads[0].dim(1), weight_offset(c), c.accumulate, compute());
}
// qkv, p:qn, p:kn -> qk, rqk
void head_norm(const Call& c) {
  qk_norm(element(c), in(c, 0), in(c, 1), in(c, 2), out(c, 0), out_as<float>(c, 1), c.context->T, heads_of(c), epsilon(c),
          weight_offset(c), compute());
}
// dqk, qkv, rqk, p:qn, p:kn, dqkv -> dqkv, g:qn, g:kn, ws_qk
void head_norm_backward(const Call& c) {
  qk_norm_backward(element(c), in(c, 0), in(c, 1), in_as<float>(c, 2), in(c, 3), in(c, 4), out(c, 0), out(c, 1), out(c, 2),
                   c.context->T, heads_of(c), weight_offset(c), c.accumulate, compute());
}
// rows, cos, sin[, positions] -> rows
void rotate(const Call& c, float direction) {
  const OpContext& x = *c.context;
  const int64_t* positions = c.reads.size() > 3 ? in_as<int64_t>(c, 3) : nullptr;
  rope(element(c), out(c, 0), in_as<float>(c, 1), in_as<float>(c, 2), x.T, x.S, x.a + x.kv, x.d, 2 * c.reads[1].dim(1),
       c.writes[0].dim(1), direction, positions, compute());
}
void rotate_forward(const Call& c) { rotate(c, 1.f); }
void rotate_backward(const Call& c) { rotate(c, -1.f); }
// gu -> m
void gate(const Call& c) { swiglu(element(c), in(c, 0), out(c, 0), c.writes[0].dim(0), c.writes[0].dim(1), compute()); }
// dm, gu -> dgu
void gate_backward(const Call& c) {
  swiglu_backward(element(c), in(c, 0), in(c, 1), out(c, 0), c.reads[0].dim(0), c.reads[0].dim(1), compute());
}
// z, targets, loss_scale, loss -> dz, loss
void loss(const Call& c) {
  cross_entropy(element(c), in(c, 0), in_as<int64_t>(c, 1), out(c, 0), out_as<double>(c, 1), c.reads[0].dim(0), c.reads[0].dim(1),
                in_as<double>(c, 2), multiplier(c), float(c.attributes->soft_cap), compute());
}
LogitShape logit_shape(const Call& c) { return {multiplier(c), float(c.attributes->soft_cap)}; }
// z, targets -> stats
void loss_local(const Call& c) {
  const int64_t V = c.reads[0].dim(1);
  cross_entropy_local(element(c), in(c, 0), in_as<int64_t>(c, 1), out_as<float>(c, 0), c.reads[0].dim(0), V,
                      own_vocabulary(*c.context, V), logit_shape(c), compute());
}
// z, targets, all_stats, loss_scale, loss -> dz, loss
void loss_finish(const Call& c) {
  const int64_t V = c.reads[0].dim(1);
  cross_entropy_finish(element(c), in(c, 0), in_as<int64_t>(c, 1), in_as<float>(c, 2), c.context->tp, out(c, 0), out_as<double>(c, 1),
                       c.reads[0].dim(0), V, in_as<double>(c, 3), own_vocabulary(*c.context, V), logit_shape(c), compute());
}
// targets, all_stats -> sequence_logps
void pair_logps(const Call& c) {
  sequence_logps(in_as<int64_t>(c, 0), in_as<float>(c, 1), c.context->tp, out_as<double>(c, 0), c.reads[0].dim(0), c.writes[0].dim(0),
                 compute());
}
// sequence_logps -> reference_logps
void logps_of_reference(const Call& c) {
  reference_logps(in_as<double>(c, 0), c.writes[0].dim(0), c.context->cp, out_as<float>(c, 0), compute());
}
// sequence_logps, reference_logps, loss_scale, loss -> coefficients, loss, policy_logps
template <PairLoss kLoss>
void pairs(const Call& c) {
  preference(in_as<double>(c, 0), in_as<float>(c, 1), in_as<double>(c, 2), {kLoss, c.attributes->beta, c.attributes->label_smoothing},
             c.writes[0].dim(0), c.context->cp, c.context->cp_index == 0, out_as<double>(c, 0), out_as<double>(c, 1),
             out_as<float>(c, 2), compute());
}
// z, targets, all_stats, coefficients -> dz
void pair_gradient(const Call& c) {
  const int64_t V = c.reads[0].dim(1);
  logits_gradient(element(c), in(c, 0), in_as<int64_t>(c, 1), in_as<float>(c, 2), c.context->tp, in_as<double>(c, 3),
                  c.reads[3].dim(0), out(c, 0), c.reads[0].dim(0), V, own_vocabulary(*c.context, V), logit_shape(c), compute());
}
// qkv, p:b -> qkv
void bias(const Call& c) { bias_add(element(c), out(c, 0), in(c, 1), c.writes[0].dim(0), c.writes[0].dim(1), compute()); }
// dqkv -> g:b, ws
void bias_gradient(const Call& c) {
  bias_backward(element(c), in(c, 0), out(c, 0), c.reads[0].dim(0), c.reads[0].dim(1), c.accumulate, compute());
}

// x, p:w[, p:b] -> h, mean, r
void row_norm(const Call& c) {
  layer_norm(element(c), in(c, 0), in(c, 1), c.reads.size() > 2 ? in(c, 2) : nullptr, out(c, 0), out_as<float>(c, 1),
             out_as<float>(c, 2), c.reads[0].dim(0), c.reads[0].dim(1), epsilon(c), float(c.attributes->weight_offset), compute());
}
// dh, x, mean, r, p:w[, residual] -> dx, g:w[, g:b], ws
void row_norm_backward(const Call& c) {
  layer_norm_backward(element(c), in(c, 0), in(c, 1), in_as<float>(c, 2), in_as<float>(c, 3), in(c, 4),
                      c.reads.size() > 5 ? in(c, 5) : nullptr, out(c, 0), out(c, 1), c.writes.size() > 3 ? out(c, 2) : nullptr,
                      c.reads[0].dim(0), c.reads[0].dim(1), float(c.attributes->weight_offset), c.accumulate, compute());
}
// qkv, p:qn, p:kn -> qk, rqk
void wide_norm(const Call& c) {
  qk_norm_wide(element(c), in(c, 0), in(c, 1), in(c, 2), out(c, 0), out_as<float>(c, 1), c.context->T, heads_of(c), epsilon(c),
               compute());
}
// dqk, qkv, rqk, p:qn, p:kn, dqkv -> dqkv, g:qn, g:kn, ws
void wide_norm_backward(const Call& c) {
  qk_norm_wide_backward(element(c), in(c, 0), in(c, 1), in_as<float>(c, 2), in(c, 3), in(c, 4), out(c, 0), out(c, 1), out(c, 2),
                        c.context->T, heads_of(c), c.accumulate, compute());
}
// a, b -> c
void sum(const Call& c) { add(element(c), in(c, 0), in(c, 1), out(c, 0), numel(c.writes[0]), compute()); }
// The token that this rank's first row is, where ranks share the tokens.
int64_t first_token(const Call& c, int64_t num_rows) { return c.context->tp_index * num_rows; }
// A table of positions from the row of position 0 on, and its number of rows.
char* position_rows(const Call& c, const Argument& table) {
  return static_cast<char*>(table.data) + c.attributes->first_row * table.dim(1) * size_bytes(table.dtype);
}
int64_t num_positions(const Call& c, const Argument& table) { return table.dim(0) - c.attributes->first_row; }
// Zeros for the rows before it, unless gradients are added to what is there.
void clear_first_rows(const Call& c) {
  const Argument& table = c.writes[0];
  const int64_t num_bytes = c.attributes->first_row * table.dim(1) * size_bytes(table.dtype);
  if (c.accumulate || num_bytes == 0) return;
  if (cudaMemsetAsync(table.data, 0, size_t(num_bytes), compute()) != cudaSuccess) throw std::runtime_error("CUDA memset failed");
}
// y, p:wpe -> y
void positions(const Call& c) {
  position_add(element(c), out(c, 0), position_rows(c, c.reads[1]), c.writes[0].dim(0), positions_of(*c.context), c.writes[0].dim(1),
               first_token(c, c.writes[0].dim(0)), compute());
}
// dy -> g:wpe
void positions_backward(const Call& c) {
  clear_first_rows(c);
  position_backward(element(c), in(c, 0), position_rows(c, c.writes[0]), c.reads[0].dim(0), positions_of(*c.context),
                    num_positions(c, c.writes[0]), c.writes[0].dim(1), first_token(c, c.reads[0].dim(0)), c.accumulate, compute());
}
// y, p:wpe, positions -> y: rows of a rank that splits the tokens are some of them
void positions_of_documents(const Call& c) {
  const int64_t T = c.writes[0].dim(0);
  position_add_at(element(c), out(c, 0), position_rows(c, c.reads[1]), in_as<int64_t>(c, 2) + first_token(c, T), T, c.writes[0].dim(1),
                  compute());
}
// dy, positions -> g:wpe: as the rows of an embedding whose ids are the positions
void positions_of_documents_backward(const Call& c) {
  const int64_t T = c.reads[0].dim(0), P = num_positions(c, c.writes[0]);
  clear_first_rows(c);
  embedding_backward(element(c), in_as<int64_t>(c, 1) + first_token(c, T), in(c, 0), position_rows(c, c.writes[0]), T, P,
                     c.writes[0].dim(1), 1.0f, VocabularyRange{0, P}, c.accumulate, compute());
}
// p:W .. -> W
void unpack_nf4(const Call& c) {
  char* to = out_as<char>(c, 0);
  for (const Argument& read : c.reads) {
    const Nf4Record record = nf4_record(numel(read), c.attributes->tensor_ranks);
    dequantize_nf4(element(c), static_cast<const uint8_t*>(read.data), record, to, compute());
    to += record.numel * size_bytes(c.writes[0].dtype);
  }
}
template <Activation kF>
void activate(const Call& c) {
  activation(element(c), kF, in(c, 0), out(c, 0), numel(c.writes[0]), compute());
}
template <Activation kF>
void activate_backward(const Call& c) {
  activation_backward(element(c), kF, in(c, 0), in(c, 1), out(c, 0), numel(c.writes[0]), compute());
}
template <Activation kF>
void gated(const Call& c) {
  gated_activation(element(c), kF, in(c, 0), out(c, 0), c.writes[0].dim(0), c.writes[0].dim(1), compute());
}
template <Activation kF>
void gated_backward(const Call& c) {
  gated_activation_backward(element(c), kF, in(c, 0), in(c, 1), out(c, 0), c.reads[0].dim(0), c.reads[0].dim(1), compute());
}

// q, kv, ckv -> qkv
void join_heads(const Call& c) {
  join_latent_heads(element(c), in(c, 0), in(c, 1), in(c, 2), out(c, 0), c.writes[0].dim(0),
                    latent_heads(*c.context, c.reads[1], c.reads[2]), compute());
}
// dqkv -> dq, dkv, dckv
void split_heads(const Call& c) {
  split_latent_heads(element(c), in(c, 0), out(c, 0), out(c, 1), out(c, 2), c.reads[0].dim(0),
                     latent_heads(*c.context, c.writes[1], c.writes[2]), compute());
}
void cut_heads(const Call& c) {
  const int64_t num = c.context->a;
  resize_heads(element(c), in(c, 0), out(c, 0), c.reads[0].dim(0), num, c.reads[0].dim(1) / num, c.writes[0].dim(1) / num, compute());
}

}  // namespace

const std::map<std::string, OpFunction>& own_kernels() {
  static const std::map<std::string, OpFunction> table = {{"embedding_forward", embed},
                                                          {"embedding_backward", embed_backward},
                                                          {"rms_norm", norm},
                                                          {"rms_norm_backward", norm_backward},
                                                          {"rms_norm_backward_first", norm_backward},
                                                          {"qk_norm", head_norm},
                                                          {"qk_norm_backward", head_norm_backward},
                                                          {"rope", rotate_forward},
                                                          {"rope_backward", rotate_backward},
                                                          {"rope_packed", rotate_forward},
                                                          {"rope_packed_backward", rotate_backward},
                                                          {"position_add_packed", positions_of_documents},
                                                          {"position_add_packed_backward", positions_of_documents_backward},
                                                          {"swiglu", gate},
                                                          {"swiglu_backward", gate_backward},
                                                          {"cross_entropy", loss},
                                                          {"cross_entropy_local", loss_local},
                                                          {"cross_entropy_finish", loss_finish},
                                                          {"sequence_logps", pair_logps},
                                                          {"reference_logps", logps_of_reference},
                                                          {"dpo_sigmoid", pairs<PairLoss::kSigmoid>},
                                                          {"dpo_hinge", pairs<PairLoss::kHinge>},
                                                          {"dpo_ipo", pairs<PairLoss::kIpo>},
                                                          {"logits_gradient", pair_gradient},
                                                          {"bias_add", bias},
                                                          {"bias_backward", bias_gradient},
                                                          {"layer_norm", row_norm},
                                                          {"layer_norm_backward", row_norm_backward},
                                                          {"layer_norm_backward_first", row_norm_backward},
                                                          {"layer_norm_no_bias", row_norm},
                                                          {"layer_norm_no_bias_backward", row_norm_backward},
                                                          {"layer_norm_no_bias_backward_first", row_norm_backward},
                                                          {"qk_norm_wide", wide_norm},
                                                          {"qk_norm_wide_backward", wide_norm_backward},
                                                          {"add", sum},
                                                          {"position_add", positions},
                                                          {"position_backward", positions_backward},
                                                          {"dequantize_nf4", unpack_nf4},
                                                          {"latent_heads", join_heads},
                                                          {"latent_heads_backward", split_heads},
                                                          {"latent_values", cut_heads},
                                                          {"latent_values_backward", cut_heads},
                                                          {"gelu", activate<Activation::kGelu>},
                                                          {"gelu_backward", activate_backward<Activation::kGelu>},
                                                          {"gelu_tanh", activate<Activation::kGeluTanh>},
                                                          {"gelu_tanh_backward", activate_backward<Activation::kGeluTanh>},
                                                          {"relu", activate<Activation::kRelu>},
                                                          {"relu_backward", activate_backward<Activation::kRelu>},
                                                          {"relu2", activate<Activation::kRelu2>},
                                                          {"relu2_backward", activate_backward<Activation::kRelu2>},
                                                          {"silu", activate<Activation::kSilu>},
                                                          {"silu_backward", activate_backward<Activation::kSilu>},
                                                          {"geglu", gated<Activation::kGelu>},
                                                          {"geglu_backward", gated_backward<Activation::kGelu>},
                                                          {"geglu_tanh", gated<Activation::kGeluTanh>},
                                                          {"geglu_tanh_backward", gated_backward<Activation::kGeluTanh>}};
  return table;
}

}  // namespace distsetup::cuda
