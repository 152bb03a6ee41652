#include "plan/expert_rules.h"

#include <algorithm>
#include <cmath>

namespace distsetup {
namespace {

using Builder = ProgramBuilder;

constexpr const char* kRowsWithinCapacity = "Tc";

// --- router

// logits [T, E][, p:bias] -> weights [T, k], choice [T, k]
void declare_route(const Op& op, Builder& b) {
  const std::string rows = b.shape(op.reads[0])[0];
  b.declare(op.writes[0], {rows, "k"}, Dtype::kF32);
  b.declare(op.writes[1], {rows, "k"}, Dtype::kI64);
}
// d weights, logits, choice[, what has come before] -> d logits[, tokens of each expert above an equal share]
void route_adjoint(const Op& op, Builder& b) {
  const std::string before = b.gradient(op.reads[0]);
  std::vector<std::string> reads = {b.incoming(op.writes[0]), op.reads[0], op.writes[1]}, writes = {b.target(op.reads[0])};
  if (!before.empty()) reads.push_back(before);
  if (op.reads.size() > 1) writes.push_back(gradient_slot(op.reads[1]));
  const std::vector<Overlay> over = before.empty() ? std::vector<Overlay>{} : std::vector<Overlay>{{0, 3}};
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, op.kernel + "_backward", std::move(reads), std::move(writes), over));
}
// choice -> order, place, starts
void declare_sort(const Op& op, Builder& b) {
  const std::vector<std::string> choice = b.shape(op.reads[0]);
  const std::string rows = product_of(choice);
  b.declare(op.writes[0], {op.attributes.capacity > 0 ? kRowsWithinCapacity : rows}, Dtype::kI64);
  b.declare(op.writes[1], {rows}, Dtype::kI64);
  b.declare(op.writes[2], {"E+1"}, Dtype::kI64);
}

// --- rows of tokens, rows of experts

// What sort_experts writes lies in pairs: `order` for rows of experts, `place` for rows of tokens.
enum class RowIndex { kOrder, kPlace };
std::string index_beside(const std::string& index, RowIndex which, Builder& b) {
  return sorted_by(index, b).writes[which == RowIndex::kOrder ? 0 : 1];
}
// x, order -> rows of x, expert by expert
void declare_permuted(const Op& op, Builder& b) {
  b.declare(op.writes[0], {b.shape(op.reads[1])[0], b.shape(op.reads[0])[1]}, b.dtype(op.reads[0]));
}
void permute_adjoint(const Op& op, Builder& b) {
  const std::string before = b.gradient(op.reads[0]);
  std::vector<std::string> reads = {b.incoming(op.writes[0]), index_beside(op.reads[1], RowIndex::kPlace, b)};
  if (!before.empty()) reads.push_back(before);
  const std::vector<Overlay> over = before.empty() ? std::vector<Overlay>{} : std::vector<Overlay>{{0, 2}};
  b.backward(adjoint_op(op, "_b", OpKind::kCopy, before.empty() ? "unpermute" : "unpermute_add", std::move(reads),
                        {b.target(op.reads[0])}, over));
}
// rows of experts, place[, what is added to] -> rows of tokens
void declare_unpermuted(const Op& op, Builder& b) {
  const std::string& choice = sorted_by(op.reads[1], b).reads[0];
  b.declare(op.writes[0], {b.shape(choice)[0], b.shape(op.reads[0])[1]}, b.dtype(op.reads[0]));
}
void unpermute_adjoint(const Op& op, Builder& b) {
  const std::string d = b.incoming(op.writes[0]);
  b.backward(
      adjoint_op(op, "_b", OpKind::kCopy, "permute", {d, index_beside(op.reads[1], RowIndex::kOrder, b)}, {b.target(op.reads[0])}));
  if (op.reads.size() > 2) b.pass(op, op.reads[2], d);
}

// --- products: x, p:W of all experts, starts -> y

void declare_grouped(const Op& op, Builder& b) { b.declare(op.writes[0], {b.shape(op.reads[0])[0], b.rows_each(op.reads[1])}); }
std::string grouped_flops(const Op& op, Builder& b) {
  // Where several ranks have the experts, as many rows come as go: all are asked alike.
  return product_of({"2", rows_of_tokens(op.reads[2], b), b.shape(op.reads[1])[1], b.rows_each(op.reads[1])});
}
void grouped_adjoint(const Op& op, Builder& b) {
  const std::string dy = b.incoming(op.writes[0]), x = op.reads[0], w = op.reads[1], starts = op.reads[2];
  b.backward(adjoint_op(op, "_dw", OpKind::kGroupedGemm, "grouped_linear_dw", {dy, x, starts}, {gradient_slot(w)}, {}, op.flops));
  if (!b.gradient(x).empty()) b.fail("op '" + op.name + "' reads rows of experts that another op reads too");
  b.backward(adjoint_op(op, "_dx", OpKind::kGroupedGemm, "grouped_linear_dx", {dy, w, starts}, {b.target(x)}, {}, op.flops));
}

// --- gated activations, times a weight

// gate and up, weights, order -> m
void declare_weighted(const Op& op, Builder& b) {
  const std::vector<std::string> in = b.shape(op.reads[0]);
  b.declare(op.writes[0], {in[0], "(" + in[1] + ")/2"});
}
void weighted_adjoint(const Op& op, Builder& b) {
  const std::string dm = b.incoming(op.writes[0]);
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, op.kernel + "_backward", {dm, op.reads[0], op.reads[1], op.reads[2]},
                        {b.target(op.reads[0]), b.target(op.reads[1])}, {{0, 1}}));
}
// m, s [T, 1] -> rows of m times sigmoid(s)
void rows_adjoint(const Op& op, Builder& b) {
  const std::string d = b.incoming(op.writes[0]);
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, "sigmoid_rows_backward", {d, op.reads[0], op.reads[1]},
                        {b.target(op.reads[0]), b.target(op.reads[1])}, {{0, 0}}));
}

// --- the load-balancing loss

// A run buffer is written: it needs no declaration.
void declare_nothing(const Op& op, Builder& b) { (void)b.shape(op.writes[0]); }
// logits, choice, router_sums -> router_sums. Backward comes when all layers have added theirs.
void count_adjoint(const Op& op, Builder& b) {
  const std::string before = b.gradient(op.reads[0]);
  const std::string scale(kRouterScale);
  (void)b.shape(scale);
  std::vector<std::string> reads = {op.reads[0], op.reads[2], scale};
  if (!before.empty()) reads.push_back(before);
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, "count_routes_backward", std::move(reads), {b.target(op.reads[0])}));
}

// logits, router_scale, loss -> loss. With tensor parallelism the logits are of the tokens of all ranks, and this rank's own come
// last: those have the gradient, as a part of the mean.
void z_loss_adjoint(const Op& op, Builder& b) {
  const std::string& own = op.reads.size() > 3 ? op.reads[3] : op.reads[0];
  const std::string before = b.gradient(own);
  std::vector<std::string> reads = {own, op.reads[1]};
  if (!before.empty()) reads.push_back(before);
  Op back = adjoint_op(op, "_b", OpKind::kElementwise, "router_z_loss_backward", std::move(reads), {b.target(own)});
  back.attributes.multiplier /= static_cast<double>(op.attributes.tensor_ranks);
  b.backward(std::move(back));
}

}  // namespace

const std::vector<KernelRule>& expert_rules() {
  using enum OpKind;
  static const std::vector<KernelRule> rules = {
      {"route_softmax", kElementwise, 1, 2, {}, declare_route, nullptr, route_adjoint},
      {"route_softmax_biased", kElementwise, 2, 2, {}, declare_route, nullptr, route_adjoint},
      {"route_sigmoid", kElementwise, 2, 2, {}, declare_route, nullptr, route_adjoint},
      {"sort_experts", kElementwise, 1, 3, {}, declare_sort, nullptr, no_adjoint},
      {"permute", kCopy, 2, 1, {}, declare_permuted, nullptr, permute_adjoint},
      {"unpermute", kCopy, 2, 1, {}, declare_unpermuted, nullptr, unpermute_adjoint},
      {"unpermute_add", kCopy, 3, 1, {{0, 2}}, declare_unpermuted, nullptr, unpermute_adjoint},
      {"grouped_linear", kGroupedGemm, 3, 1, {}, declare_grouped, grouped_flops, grouped_adjoint},
      {"swiglu_weighted", kElementwise, 3, 1, {}, declare_weighted, nullptr, weighted_adjoint},
      {"geglu_weighted", kElementwise, 3, 1, {}, declare_weighted, nullptr, weighted_adjoint},
      {"geglu_tanh_weighted", kElementwise, 3, 1, {}, declare_weighted, nullptr, weighted_adjoint},
      {"clipped_swiglu_weighted", kElementwise, 3, 1, {}, declare_weighted, nullptr, weighted_adjoint},
      {"sigmoid_rows", kElementwise, 2, 1, {{0, 0}}, declare_same, nullptr, rows_adjoint},
      {"clear_routes", kElementwise, 1, 1, {}, declare_nothing, nullptr, no_adjoint},
      {"count_routes", kElementwise, 3, 1, {}, declare_nothing, nullptr, count_adjoint},
      {"balance_loss", kLoss, 3, 1, {}, declare_nothing, nullptr, no_adjoint},
      {"router_z_loss", kElementwise, 3, 1, {}, declare_nothing, nullptr, z_loss_adjoint},
      {"router_z_loss_of_all", kElementwise, 4, 1, {}, declare_nothing, nullptr, z_loss_adjoint}};
  return rules;
}

int64_t capacity_rows(double capacity, int64_t choices, int64_t num_experts) {
  if (capacity == 0) return choices;
  return std::min(choices,
                  static_cast<int64_t>(std::ceil(capacity * static_cast<double>(choices) / static_cast<double>(num_experts))));
}
int64_t sorted_rows(double capacity, int64_t choices, int64_t num_experts) {
  return std::min(choices, num_experts * capacity_rows(capacity, choices, num_experts));
}
Op with_capacity(Op op, const Geometry& geometry) {
  if (geometry.expert_capacity == 0) return op;
  op.attributes.capacity = geometry.expert_capacity;
  op.attributes.chosen = geometry.experts_per_token;
  return op;
}

const Op& sorted_by(std::string index, ProgramBuilder& b) {
  static const Op kNone = {{}, {}, {}, {{}}, {{}, {}, {}}, {}, {}, {}, {}};
  const std::string asked = index;
  for (const Op* from = b.writer(index); from != nullptr && !from->reads.empty(); from = b.writer(index)) {
    if (from->kernel == "sort_experts") return *from;
    index = from->reads.front();
  }
  b.fail("'" + asked + "' does not come from sort_experts");
  return kNone;
}

std::string rows_of_tokens(const std::string& index, ProgramBuilder& b) {
  const std::vector<std::string>& order = b.shape(sorted_by(index, b).writes[0]);
  return order.empty() ? "" : order[0];
}

bool scores_experts(const Op& product, const std::vector<Op>& forward) {
  return std::any_of(forward.begin(), forward.end(),
                     [&](const Op& op) { return op.kernel.starts_with("route_") && op.reads[0] == product.writes[0]; });
}

bool has_experts(const Program& program) {
  return std::any_of(program.forward.begin(), program.forward.end(), [](const Op& op) { return op.kind == OpKind::kGroupedGemm; });
}

}  // namespace distsetup
