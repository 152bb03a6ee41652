#include "plan/latent_rules.h"

#include <algorithm>

namespace distsetup {
namespace {

using Builder = ProgramBuilder;

constexpr std::string_view kLatentHeads = "latent_heads";

void declare_part(const Op& op, Builder& b) { b.declare(op.writes[0], {b.shape(op.reads[0])[0], "rk"}); }
// Takes the latent's columns; those of the rotary key have come from latent_heads.
void part_adjoint(const Op& op, Builder& b) {
  const std::string d = b.incoming(op.reads[0]);
  b.backward(adjoint_op(op, "_b", OpKind::kCopy, "latent_part_backward", {b.incoming(op.writes[0]), d}, {d}));
}

void declare_heads(const Op& op, Builder& b) { b.declare(op.writes[0], {b.shape(op.reads[0])[0], "(a+2*kv)*d"}); }
void heads_adjoint(const Op& op, Builder& b) {
  const std::string d = b.incoming(op.writes[0]);
  std::vector<std::string> writes;
  for (const std::string& r : op.reads) {
    if (!b.gradient(r).empty()) b.fail("op '" + op.name + "' reads '" + r + "', which a later op reads too");
    writes.push_back(b.target(r));
  }
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, "latent_heads_backward", {d}, std::move(writes)));
}

void declare_values(const Op& op, Builder& b) { b.declare(op.writes[0], {b.shape(op.reads[0])[0], "a*dv"}); }
void values_adjoint(const Op& op, Builder& b) {
  b.backward(
      adjoint_op(op, "_b", OpKind::kElementwise, "latent_values_backward", {b.incoming(op.writes[0])}, {b.target(op.reads[0])}));
}

}  // namespace

const std::vector<KernelRule>& latent_rules() {
  static const std::vector<KernelRule> rules = {
      {"latent_part", OpKind::kCopy, 1, 1, {}, declare_part, nullptr, part_adjoint},
      {kLatentHeads, OpKind::kElementwise, 3, 1, {}, declare_heads, nullptr, heads_adjoint},
      {"latent_values", OpKind::kElementwise, 1, 1, {}, declare_values, nullptr, values_adjoint}};
  return rules;
}

bool has_latents(const Program& program) {
  return std::any_of(program.forward.begin(), program.forward.end(), [](const Op& op) { return op.kernel == kLatentHeads; });
}

}  // namespace distsetup
