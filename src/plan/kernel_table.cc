// Sources: the adjoints are calculus; a product takes two FLOPs for each element of its matrices' common dimension and result.
#include "plan/kernel_table.h"

#include <fmt/format.h>

#include "plan/attention_rules.h"
#include "plan/expert_parallel.h"
#include "plan/expert_rules.h"
#include "plan/latent_rules.h"
#include "plan/packed_rows.h"
#include "plan/sinks_biases.h"

namespace distsetup {
namespace {

using Builder = ProgramBuilder;

// Of vectors, added.
std::string width_of(const std::vector<std::string>& parameters, Builder& b) {
  std::string width;
  for (const std::string& p : parameters) width += (width.empty() ? "" : "+") + b.shape(p)[0];
  return width;
}

// --- products: x, p:W [, residual] -> y

void declare_product(const Op& op, Builder& b) {
  const std::string rows = b.shape(op.reads[0]).front(), columns = b.shape(op.reads[1]).front();
  b.declare(op.writes[0], {rows, columns});
}
std::string product_flops(const Op& op, Builder& b) {
  return product_of({"2", b.shape(op.reads[0])[0], b.shape(op.reads[1])[1], b.shape(op.reads[1])[0]});
}
void product_adjoint(const Op& op, Builder& b) {
  const std::string dy = b.incoming(op.writes[0]), x = op.reads[0], before = b.gradient(x);
  const bool is_parameter = op.reads[1].starts_with("p:");  // else made of parameters that have no gradient
  if (is_parameter) b.backward(adjoint_op(op, "_dw", OpKind::kGemm, "linear_dw", {dy, x}, {gradient_slot(op.reads[1])}, {}, op.flops));
  if (before.empty())
    b.backward(adjoint_op(op, "_dx", OpKind::kGemm, "linear_dx", {dy, op.reads[1]}, {b.target(x)}, {}, op.flops));
  else
    b.backward(adjoint_op(op, "_dx", OpKind::kGemm, "linear_dx_add", {dy, op.reads[1], before}, {b.target(x)}, {{0, 2}}, op.flops));
}
void product_add_adjoint(const Op& op, Builder& b) {
  const std::string dy = b.incoming(op.writes[0]);
  product_adjoint(op, b);
  b.pass(op, op.reads[2], dy);
}

// p:W .. -> W, their rows one after the other: out of nf4. Backward makes it again where it reads it.
void declare_unpacked(const Op& op, Builder& b) {
  std::vector<std::string> shape = b.shape(op.reads[0]);
  for (size_t i = 1; i < op.reads.size(); ++i) shape[0] += "+" + b.shape(op.reads[i])[0];
  b.declare(op.writes[0], shape);
  b.mark_passing(op.writes[0]);
}

// low, p:W, y -> y: adds multiplier · low[:, low_column ..] · Wᵀ to the columns of y from `column` on (adapters, frozen.h)
void declare_columns(const Op& op, Builder& b) { b.declare(op.writes[0], b.shape(op.reads[2])); }
std::string columns_flops(const Op& op, Builder& b) {
  return product_of({"2", b.shape(op.reads[0])[0], b.shape(op.reads[1])[0], b.shape(op.reads[1])[1]});
}
void columns_adjoint(const Op& op, Builder& b) {
  const std::string dy = b.incoming(op.writes[0]), low = op.reads[0], before = b.gradient(low);
  b.backward(adjoint_op(op, "_dw", OpKind::kGemm, "columns_dw", {dy, low}, {gradient_slot(op.reads[1])}, {}, op.flops));
  std::vector<std::string> reads = {dy, op.reads[1]};
  if (!before.empty()) reads.push_back(before);  // other columns of the same rows
  b.backward(adjoint_op(op, "_dx", OpKind::kGemm, "columns_dx", std::move(reads), {b.target(low)}, {}, op.flops));
}

// --- norms

// x, p:w[, p:b] -> h and what backward needs of each row (r; mean and r).
void declare_row_norm(const Op& op, Builder& b) {
  declare_same(op, b);
  for (size_t i = 1; i < op.writes.size(); ++i) b.declare(op.writes[i], {b.shape(op.reads[0])[0]}, Dtype::kF32);
}
// dh, x, rows' numbers, p:w[, what has come before] -> dx, g:w[, g:b], scratch as wide as the weights together
void row_norm_adjoint(const Op& op, Builder& b) {
  const std::string x = op.reads[0], before = b.gradient(x);
  std::vector<std::string> reads = {b.incoming(op.writes[0]), x}, weights(op.reads.begin() + 1, op.reads.end());
  reads.insert(reads.end(), op.writes.begin() + 1, op.writes.end());
  reads.push_back(weights[0]);
  const std::string kernel = op.kernel + "_backward" + (before.empty() ? "_first" : "");
  const int over = before.empty() ? 0 : static_cast<int>(reads.size());
  if (!before.empty()) reads.push_back(before);
  std::vector<std::string> writes = {b.target(x)};
  for (const std::string& w : weights) writes.push_back(gradient_slot(w));
  writes.push_back(b.scratch(op, {width_of(weights, b)}));
  b.backward(adjoint_op(op, "_b", OpKind::kNorm, kernel, std::move(reads), std::move(writes), {{0, over}}));
}
// qkv, p:qn, p:kn -> qk, r: the k heads lie behind the q heads in both.
void declare_qk_norm(const Op& op, Builder& b) {
  b.declare(op.writes[0], {b.shape(op.reads[0])[0], "(a+kv)*d"});
  b.declare(op.writes[1], {b.shape(op.reads[0])[0], op.kernel == "qk_norm_wide" ? "2" : "a+kv"}, Dtype::kF32);
}
// Takes the q and k columns; those of v have come from attention.
void qk_norm_adjoint(const Op& op, Builder& b) {
  const std::string dqk = b.incoming(op.writes[0]), dqkv = b.incoming(op.reads[0]);
  const std::string width = width_of({op.reads[1], op.reads[2]}, b);
  b.backward(adjoint_op(op, "_b", OpKind::kNorm, op.kernel + "_backward",
                        {dqk, op.reads[0], op.writes[1], op.reads[1], op.reads[2], dqkv},
                        {dqkv, gradient_slot(op.reads[1]), gradient_slot(op.reads[2]), b.scratch(op, {width})}));
}

// --- in place: rows, ... -> rows

void rope_adjoint(const Op& op, Builder& b) {
  const std::string d = b.incoming(op.writes[0]);
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, "rope_backward", {d, op.reads[1], op.reads[2]}, {d}));
}
void bias_adjoint(const Op& op, Builder& b) {
  const std::string bias = op.reads[1];
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, "bias_backward", {b.incoming(op.writes[0])},
                        {gradient_slot(bias), b.scratch(op, b.shape(bias))}));
}
void position_adjoint(const Op& op, Builder& b) {
  b.backward(adjoint_op(op, "_b", OpKind::kEmbedding, "position_backward", {b.incoming(op.writes[0])}, {gradient_slot(op.reads[1])}));
}

// --- activations

void declare_half(const Op& op, Builder& b) {
  const std::vector<std::string> in = b.shape(op.reads[0]);
  b.declare(op.writes[0], {in[0], "(" + in[1] + ")/2"});
}
void activation_adjoint(const Op& op, Builder& b) {
  const std::string dm = b.incoming(op.writes[0]);
  b.backward(
      adjoint_op(op, "_b", OpKind::kElementwise, op.kernel + "_backward", {dm, op.reads[0]}, {b.target(op.reads[0])}, {{0, 1}}));
}
void add_adjoint(const Op& op, Builder& b) {
  const std::string d = b.incoming(op.writes[0]);
  for (const std::string& r : op.reads) b.pass(op, r, d);
}

// --- ends

void declare_embedding(const Op& op, Builder& b) { b.declare(op.writes[0], {b.shape(op.reads[0])[0], b.shape(op.reads[1])[1]}); }
void embedding_adjoint(const Op& op, Builder& b) {
  b.backward(adjoint_op(op, "_dw", OpKind::kEmbedding, "embedding_backward", {op.reads[0], b.incoming(op.writes[0])},
                        {gradient_slot(op.reads[1])}));
}
// z, targets, loss_scale, loss -> dz, loss: the gradient comes with the loss.
void declare_loss(const Op& op, Builder& b) {
  b.declare(op.writes[0], b.shape(op.reads[0]));
  b.mark_logits(op.reads[0]);
  b.mark_logits(op.writes[0]);
}
void loss_adjoint(const Op& op, Builder& b) { b.set_gradient(op.reads[0], op.writes[0]); }

// --- the loss where each rank has a part of the vocabulary (tensor_parallel.h)

// z, targets -> for each row: the largest logit, the sum of exp(logit - largest), the target's logit
void declare_local_loss(const Op& op, Builder& b) { b.declare(op.writes[0], {b.shape(op.reads[0])[0], "3"}, Dtype::kF32); }

// --- losses of preference pairs (preference_loss.h)

// targets, row_stats -> for each sequence: the sum of the log-probabilities of its trained targets, and how many they are
void declare_sequence_logps(const Op& op, Builder& b) { b.declare(op.writes[0], {"B", "2"}, Dtype::kF64); }
// sequence_logps, reference_logps, loss_scale, loss -> coefficients, loss, policy_logps
void declare_preference(const Op& op, Builder& b) {
  b.declare(op.writes[0], {"B"}, Dtype::kF64);
  (void)b.shape(op.writes[2]);  // a run buffer
}

// sequence_logps -> reference_logps
void declare_reference(const Op& op, Builder& b) { (void)b.shape(op.writes[0]); }

// --- communication over tp or cp: "Ts" rows of T are a tp rank's, T rows of cp·T a cp rank's

// Rows of all ranks, one after the other.
void declare_gathered(const Op& op, Builder& b) {
  const std::vector<std::string> rows = b.shape(op.reads[0]);
  const std::string all = op.group == Group::kCp ? product_of({"cp", rows[0]}) : rows[0] == "Ts" ? "T" : product_of({"tp", rows[0]});
  b.declare(op.writes[0], {all, rows[1]}, b.dtype(op.reads[0]));
}
// Rows that the other ranks of a reduction send.
std::string received_rows(Group group) { return group == Group::kCp ? "(cp-1)*T" : "T-Ts"; }
// y: this rank's rows of the sum over all ranks, and of an addend; what the others send lies in the second tensor until it is added.
void declare_scattered(const Op& op, Builder& b) {
  const std::string width = b.shape(op.reads[0])[1];
  b.declare(op.writes[0], {"Ts", width});
  b.declare(op.writes[1], {received_rows(Group::kTp), width});
}
Op communication(const Op& of, std::string_view kernel, std::vector<std::string> reads, std::vector<std::string> writes) {
  const KernelRule& rule = *find_kernel(kernel);
  Op op = adjoint_op(of, "_b", rule.kind, std::string(kernel), std::move(reads), std::move(writes), rule.over);
  op.group = of.group;
  return op;
}
void gather_adjoint(const Op& op, Builder& b) {
  const std::string d = b.gradient(op.writes[0]), before = b.gradient(op.reads[0]);
  if (d.empty()) return;  // what the loss gathers has none
  std::vector<std::string> reads = {d};
  if (!before.empty()) reads.push_back(before);
  const std::string received = "recv_" + op.name + "_b";
  b.declare(received, {received_rows(op.group), b.shape(op.reads[0])[1]});
  b.backward(communication(op, before.empty() ? "reduce_scatter" : "reduce_scatter_add", std::move(reads),
                           {b.target(op.reads[0]), received}));
}
void scatter_adjoint(const Op& op, Builder& b) {
  const std::string d = b.incoming(op.writes[0]);
  b.backward(communication(op, "all_gather", {d}, {b.target(op.reads[0])}));
  if (op.reads.size() > 1) b.pass(op, op.reads[1], d);
}

const std::vector<KernelRule>& kernel_rules() {
  using enum OpKind;
  static const std::vector<KernelRule> rules = {
      {"embedding_forward", kEmbedding, 2, 1, {}, declare_embedding, nullptr, embedding_adjoint},
      {"position_add", kEmbedding, 2, 1, {}, declare_same, nullptr, position_adjoint},
      {"rms_norm", kNorm, 2, 2, {}, declare_row_norm, nullptr, row_norm_adjoint},
      {"layer_norm", kNorm, 3, 3, {}, declare_row_norm, nullptr, row_norm_adjoint},
      {"layer_norm_no_bias", kNorm, 2, 3, {}, declare_row_norm, nullptr, row_norm_adjoint},
      {"qk_norm", kNorm, 3, 2, {}, declare_qk_norm, nullptr, qk_norm_adjoint},
      {"qk_norm_wide", kNorm, 3, 2, {}, declare_qk_norm, nullptr, qk_norm_adjoint},
      {"linear", kGemm, 2, 1, {}, declare_product, product_flops, product_adjoint},
      {"linear_add", kGemm, 3, 1, {{0, 2}}, declare_product, product_flops, product_add_adjoint},
      {"dequantize_nf4", kElementwise, kAnyNumber, 1, {}, declare_unpacked, nullptr, no_adjoint},
      {"columns_add", kGemm, 3, 1, {}, declare_columns, columns_flops, columns_adjoint},
      {"bias_add", kElementwise, 2, 1, {}, declare_same, nullptr, bias_adjoint},
      {"rope", kElementwise, 3, 1, {}, declare_same, nullptr, rope_adjoint},
      {"add", kElementwise, 2, 1, {{0, 0}, {0, 1}}, declare_same, nullptr, add_adjoint},
      {"swiglu", kElementwise, 1, 1, {}, declare_half, nullptr, activation_adjoint},
      {"geglu", kElementwise, 1, 1, {}, declare_half, nullptr, activation_adjoint},
      {"geglu_tanh", kElementwise, 1, 1, {}, declare_half, nullptr, activation_adjoint},
      {"gelu", kElementwise, 1, 1, {}, declare_same, nullptr, activation_adjoint},
      {"gelu_tanh", kElementwise, 1, 1, {}, declare_same, nullptr, activation_adjoint},
      {"relu", kElementwise, 1, 1, {}, declare_same, nullptr, activation_adjoint},
      {"relu2", kElementwise, 1, 1, {}, declare_same, nullptr, activation_adjoint},
      {"silu", kElementwise, 1, 1, {}, declare_same, nullptr, activation_adjoint},
      {"cross_entropy", kLoss, 4, 2, {{0, 0}}, declare_loss, nullptr, loss_adjoint},
      {"cross_entropy_local", kLoss, 2, 1, {}, declare_local_loss, nullptr, no_adjoint},
      {"cross_entropy_finish", kLoss, 5, 2, {{0, 0}}, declare_loss, nullptr, loss_adjoint},
      {"sequence_logps", kLoss, 2, 1, {}, declare_sequence_logps, nullptr, no_adjoint},
      {"dpo_sigmoid", kLoss, 4, 3, {}, declare_preference, nullptr, no_adjoint},
      {"dpo_hinge", kLoss, 4, 3, {}, declare_preference, nullptr, no_adjoint},
      {"dpo_ipo", kLoss, 4, 3, {}, declare_preference, nullptr, no_adjoint},
      {"reference_logps", kLoss, 1, 1, {}, declare_reference, nullptr, no_adjoint},
      {"logits_gradient", kLoss, 4, 1, {{0, 0}}, declare_loss, nullptr, loss_adjoint},
      {"all_gather", kAllGather, 1, 1, {}, declare_gathered, nullptr, gather_adjoint},
      {"reduce_scatter", kReduceScatter, 1, 2, {}, declare_scattered, nullptr, scatter_adjoint},
      {"reduce_scatter_add", kReduceScatter, 2, 2, {{0, 1}}, declare_scattered, nullptr, scatter_adjoint}};
  return rules;
}

}  // namespace

const KernelRule* find_kernel(std::string_view name) {
  for (const std::vector<KernelRule>* rules : {&kernel_rules(), &attention_rules(), &packed_rules(), &expert_rules(),
                                               &expert_parallel_rules(), &latent_rules(), &sink_and_bias_rules()})
    for (const KernelRule& rule : *rules)
      if (rule.name == name) return &rule;
  return nullptr;
}

std::span<const std::string_view> program_inputs() {
  static constexpr std::string_view kInputs[] = {"ids",       "targets",   "cos",        "sin",  kDocumentPositions, kDocumentStarts,
                                                 "cos_local", "sin_local", "loss_scale", "loss", "reference_logps",  "policy_logps",
                                                 kRouterSums, kRouterScale};
  return kInputs;
}

}  // namespace distsetup
