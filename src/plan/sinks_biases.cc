// Source: Transformers, models/gpt_oss/modeling_gpt_oss.py.
#include "plan/sinks_biases.h"

namespace distsetup {
namespace {

using Builder = ProgramBuilder;

// att, lse, p:sinks [a] -> att, lse: rows times 1 - the sink's share of the softmax. d att passes through: attention's backward has
// the sink in its log-sum-exp.
void sinks_adjoint(const Op& op, Builder& b) {
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, "head_sinks_backward",
                        {b.incoming(op.writes[0]), op.writes[0], op.writes[1], op.reads[2]}, {gradient_slot(op.reads[2])}));
}

// rows of experts, p:bias [E · n] of all experts, starts -> rows
void grouped_bias_adjoint(const Op& op, Builder& b) {
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, "grouped_bias_backward", {b.incoming(op.writes[0]), op.reads[2]},
                        {gradient_slot(op.reads[1])}));
}

// x, weights [T, k], choice [T, k], p:bias [E · n] -> x + the biases of a token's experts, weighted
void routed_bias_adjoint(const Op& op, Builder& b) {
  const std::string d = b.incoming(op.writes[0]), dweights = b.incoming(op.reads[1]);  // of the gates: they come first in backward
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, "routed_bias_backward", {d, op.reads[1], op.reads[2], op.reads[3], dweights},
                        {dweights, gradient_slot(op.reads[3])}));
  b.pass(op, op.reads[0], d);
}

}  // namespace

const std::vector<KernelRule>& sink_and_bias_rules() {
  using enum OpKind;
  static const std::vector<KernelRule> rules = {
      {"head_sinks", kElementwise, 3, 2, {}, declare_same, nullptr, sinks_adjoint},
      {kGroupedBias, kElementwise, 3, 1, {}, declare_same, nullptr, grouped_bias_adjoint},
      {"routed_bias_add", kElementwise, 4, 1, {{0, 0}}, declare_same, nullptr, routed_bias_adjoint}};
  return rules;
}

}  // namespace distsetup
