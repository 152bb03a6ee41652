// Sources: the adjoints are calculus; FLOPs of products and attention as in FlashAttention-2 (arXiv 2307.08691, section 4.1: backward
// computes the scores again, 2.5 times the forward), attention's counted for the half of the scores that a causal mask leaves.
#include "plan/kernel_table.h"

#include <fmt/format.h>

namespace distsetup {
namespace {

using Builder = ProgramBuilder;

Op adjoint_op(const Op& of, std::string_view suffix, OpKind kind, std::string kernel, std::vector<std::string> reads,
              std::vector<std::string> writes, std::vector<Overlay> over = {}, std::string flops = "") {
  return {of.name + std::string(suffix),
          kind,
          std::move(kernel),
          std::move(reads),
          std::move(writes),
          std::move(over),
          std::move(flops),
          Group::kSelf,
          of.attributes};
}

std::string gradient_slot(const std::string& parameter) { return "g:" + parameter.substr(2); }

// Of vectors, added.
std::string width_of(const std::vector<std::string>& parameters, Builder& b) {
  std::string width;
  for (const std::string& p : parameters) width += (width.empty() ? "" : "+") + b.shape(p)[0];
  return width;
}

// Writes what it reads first, in place or not.
void declare_same(const Op& op, Builder& b) { b.declare(op.writes[0], b.shape(op.reads[0])); }

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
  b.backward(adjoint_op(op, "_dw", OpKind::kGemm, "linear_dw", {dy, x}, {gradient_slot(op.reads[1])}, {}, op.flops));
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

// --- attention: qkv | qk, qkv -> att, lse

void declare_attention(const Op& op, Builder& b) {
  const std::string rows = b.shape(op.reads[0])[0];
  b.declare(op.writes[0], {rows, "a*d"});
  b.declare(op.writes[1], {rows, "a"}, Dtype::kF32);
}
std::string attention_work(const Op& op, std::string_view times, std::string_view sequences = "(T/S)") {
  if (op.attributes.window == 0) return fmt::format("{}*T*S*a*d", times);
  const std::string w = fmt::format("min({},S)", op.attributes.window);  // the first w queries of a sequence see fewer
  return fmt::format("{}*{}*a*d*{}*(2*S-{})", times, sequences, w, w);
}
// A rank's share of it, where several share sequences.
std::string shared_attention_work(const Op& op, std::string_view times) {
  if (op.attributes.window == 0) return attention_work(op, times);
  return fmt::format("ceil_div({},cp)", attention_work(op, times, "B"));
}
std::string attention_flops(const Op& op, Builder&) { return attention_work(op, "2"); }
void attention_adjoint(const Op& op, Builder& b) {
  std::vector<std::string> reads = {b.incoming(op.writes[0])}, writes;
  for (const std::string& r : op.reads) {
    reads.push_back(r);
    writes.push_back(b.target(r));
  }
  reads.insert(reads.end(), op.writes.begin(), op.writes.end());
  const bool whole = op.kernel == "attention_whole";
  b.backward(adjoint_op(op, "_b", OpKind::kAttention, op.kernel + "_backward", std::move(reads), std::move(writes), {},
                        whole ? shared_attention_work(op, "5") : attention_work(op, "5")));
}

// --- attention of a rank's own queries with the keys of all ranks that share its sequences (context_parallel.h)

// qkv | qk, qkv -> kv: keys and values of the own tokens in rows of their own
void declare_packed(const Op& op, Builder& b) { b.declare(op.writes[0], {b.shape(op.reads[0])[0], "2*kv*d"}); }
void pack_adjoint(const Op& op, Builder& b) {
  const std::string rows = b.incoming(op.reads[0]);  // of q; k and v are put beside it
  std::vector<std::string> reads = {b.incoming(op.writes[0]), rows}, writes = {rows};
  if (op.reads.size() == 2) writes.push_back(b.target(op.reads[1]));
  b.backward(adjoint_op(op, "_b", OpKind::kCopy, op.kernel + "_backward", std::move(reads), std::move(writes)));
}
// Rows as they come from the ranks, one rank after the other -> rows in the order of the sequences.
void sort_adjoint(const Op& op, Builder& b) {
  b.backward(adjoint_op(op, "_b", OpKind::kCopy, op.kernel + "_backward", {b.incoming(op.writes[0])}, {b.target(op.reads[0])}));
}
// qkv | qk (for q), kv of whole sequences -> att, lse
std::string shared_attention_flops(const Op& op, Builder&) { return shared_attention_work(op, "2"); }
void shared_attention_adjoint(const Op& op, Builder& b) {
  const std::string datt = b.incoming(op.writes[0]);
  b.backward(adjoint_op(op, "_b", OpKind::kAttention, "attention_shared_backward",
                        {datt, op.reads[0], op.reads[1], op.writes[0], op.writes[1]}, {b.target(op.reads[0]), b.target(op.reads[1])},
                        {}, shared_attention_work(op, "5")));
}

// --- attention with some of the heads over whole sequences

// qkv | qk, qkv -> for each rank, one after the other, the q, k and v of its heads
void declare_heads_packed(const Op& op, Builder& b) {
  b.declare(op.writes[0], {product_of({"cp", b.shape(op.reads[0])[0]}), "(a+2*kv)*d/cp"});
}
void heads_pack_adjoint(const Op& op, Builder& b) {
  std::vector<std::string> writes;
  const std::string d = b.incoming(op.writes[0]);
  for (const std::string& r : op.reads) writes.push_back(b.target(r));
  b.backward(adjoint_op(op, "_b", OpKind::kCopy, op.kernel + "_backward", {d}, std::move(writes)));
}
// From each rank the att of its heads -> att
void declare_heads_unpacked(const Op& op, Builder& b) { b.declare(op.writes[0], {"T", "a*d"}); }
// q, k and v of a rank's heads -> att, lse
void declare_whole_attention(const Op& op, Builder& b) {
  const std::string rows = b.shape(op.reads[0])[0];
  b.declare(op.writes[0], {rows, "a*d/cp"});
  b.declare(op.writes[1], {rows, "a/cp"}, Dtype::kF32);
}
// What is exchanged goes back the same way.
void exchange_adjoint(const Op& op, Builder& b) {
  Op back = adjoint_op(op, "_b", OpKind::kAllToAll, op.kernel, {b.incoming(op.writes[0])}, {b.target(op.reads[0])});
  back.group = op.group;
  b.backward(std::move(back));
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
void no_adjoint(const Op&, Builder&) {}

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
      {"qk_norm", kNorm, 3, 2, {}, declare_qk_norm, nullptr, qk_norm_adjoint},
      {"qk_norm_wide", kNorm, 3, 2, {}, declare_qk_norm, nullptr, qk_norm_adjoint},
      {"linear", kGemm, 2, 1, {}, declare_product, product_flops, product_adjoint},
      {"linear_add", kGemm, 3, 1, {{0, 2}}, declare_product, product_flops, product_add_adjoint},
      {"bias_add", kElementwise, 2, 1, {}, declare_same, nullptr, bias_adjoint},
      {"rope", kElementwise, 3, 1, {}, declare_same, nullptr, rope_adjoint},
      {"attention", kAttention, 1, 2, {}, declare_attention, attention_flops, attention_adjoint},
      {"attention_split", kAttention, 2, 2, {}, declare_attention, attention_flops, attention_adjoint},
      {"kv_pack", kCopy, 1, 1, {}, declare_packed, nullptr, pack_adjoint},
      {"kv_pack_split", kCopy, 2, 1, {}, declare_packed, nullptr, pack_adjoint},
      {"kv_sort", kCopy, 1, 1, {}, declare_same, nullptr, sort_adjoint},
      {"attention_shared", kAttention, 2, 2, {}, declare_attention, shared_attention_flops, shared_attention_adjoint},
      {"heads_pack", kCopy, 1, 1, {}, declare_heads_packed, nullptr, heads_pack_adjoint},
      {"heads_pack_split", kCopy, 2, 1, {}, declare_heads_packed, nullptr, heads_pack_adjoint},
      {"heads_sort", kCopy, 1, 1, {}, declare_same, nullptr, sort_adjoint},
      {"attention_whole", kAttention, 1, 2, {}, declare_whole_attention, shared_attention_flops, attention_adjoint},
      {"heads_unsort", kCopy, 1, 1, {}, declare_same, nullptr, sort_adjoint},
      {"heads_unpack", kCopy, 1, 1, {}, declare_heads_unpacked, nullptr, sort_adjoint},
      {"all_to_all", kAllToAll, 1, 1, {}, declare_same, nullptr, exchange_adjoint},
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
      {"all_gather", kAllGather, 1, 1, {}, declare_gathered, nullptr, gather_adjoint},
      {"reduce_scatter", kReduceScatter, 1, 2, {}, declare_scattered, nullptr, scatter_adjoint},
      {"reduce_scatter_add", kReduceScatter, 2, 2, {{0, 1}}, declare_scattered, nullptr, scatter_adjoint}};
  return rules;
}

}  // namespace

const KernelRule* find_kernel(std::string_view name) {
  for (const KernelRule& rule : kernel_rules())
    if (rule.name == name) return &rule;
  return nullptr;
}

std::span<const std::string_view> program_inputs() {
  static constexpr std::string_view kInputs[] = {"ids", "targets", "cos", "sin", "cos_local", "sin_local", "loss_scale", "loss"};
  return kInputs;
}

}  // namespace distsetup
