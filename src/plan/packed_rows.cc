#include "plan/packed_rows.h"

#include <fmt/format.h>

#include "plan/attention_rules.h"
#include "plan/context_parallel.h"

namespace distsetup {
namespace {

using Builder = ProgramBuilder;

constexpr std::string_view kPacked = "_packed";

// qkv | qk, qkv, then where documents begin -> att, lse
void attention_adjoint_of(const Op& op, Builder& b, std::string flops) {
  std::vector<std::string> reads = {b.incoming(op.writes[0])}, writes;
  for (const std::string& r : op.reads) {
    reads.push_back(r);
    if (r != kDocumentStarts) writes.push_back(b.target(r));
  }
  reads.insert(reads.end(), op.writes.begin(), op.writes.end());
  b.backward(
      adjoint_op(op, "_b", OpKind::kAttention, op.kernel + "_backward", std::move(reads), std::move(writes), {}, std::move(flops)));
}
void declare_attention_of_documents(const Op& op, Builder& b) {
  const std::string rows = b.shape(op.reads[0])[0];
  const bool whole = op.kernel.starts_with("attention_whole");
  b.declare(op.writes[0], {rows, whole ? "a*d/cp" : "a*d"});
  b.declare(op.writes[1], {rows, whole ? "a/cp" : "a"}, Dtype::kF32);
}
// Counted as if each sequence were one document, which is the most.
std::string document_flops(const Op& op, Builder&) { return attention_work(op, "2"); }
void document_adjoint(const Op& op, Builder& b) { attention_adjoint_of(op, b, attention_work(op, "5")); }
std::string whole_flops(const Op& op, Builder&) { return shared_attention_work(op, "2"); }
void whole_adjoint(const Op& op, Builder& b) { attention_adjoint_of(op, b, shared_attention_work(op, "5")); }

// qkv | qk (for q), kv of whole sequences, where documents begin -> att, lse
void shared_adjoint(const Op& op, Builder& b) {
  const std::string datt = b.incoming(op.writes[0]);
  b.backward(adjoint_op(op, "_b", OpKind::kAttention, op.kernel + "_backward",
                        {datt, op.reads[0], op.reads[1], op.writes[0], op.writes[1], op.reads[2]},
                        {b.target(op.reads[0]), b.target(op.reads[1])}, {}, shared_attention_work(op, "5")));
}

// rows, cos, sin, positions -> rows
void rope_of_documents_adjoint(const Op& op, Builder& b) {
  const std::string d = b.incoming(op.writes[0]);
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, op.kernel + "_backward", {d, op.reads[1], op.reads[2], op.reads[3]}, {d}));
}
// y, p:wpe, positions -> y
void positions_of_documents_adjoint(const Op& op, Builder& b) {
  b.backward(adjoint_op(op, "_b", OpKind::kEmbedding, op.kernel + "_backward", {b.incoming(op.writes[0]), op.reads[2]},
                        {gradient_slot(op.reads[1])}));
}

}  // namespace

Op over_documents(Op op) {
  const bool attends =
      is_attention(op) || op.kernel == "attention_whole" || op.kernel == "attention_shared" || op.kernel.starts_with("ring_attention");
  if (!attends && op.kernel != "rope" && op.kernel != "position_add") return op;
  op.kernel += kPacked;
  op.reads.emplace_back(attends ? kDocumentStarts : kDocumentPositions);
  return op;
}

const std::vector<KernelRule>& packed_rules() {
  using enum OpKind;
  static const std::vector<KernelRule> rules = {
      {"attention_packed", kAttention, 2, 2, {}, declare_attention_of_documents, document_flops, document_adjoint},
      {"attention_split_packed", kAttention, 3, 2, {}, declare_attention_of_documents, document_flops, document_adjoint},
      {"attention_whole_packed", kAttention, 2, 2, {}, declare_attention_of_documents, whole_flops, whole_adjoint},
      {"attention_shared_packed", kAttention, 3, 2, {}, declare_attention_of_documents, whole_flops, shared_adjoint},
      {"rope_packed", kElementwise, 4, 1, {}, declare_same, nullptr, rope_of_documents_adjoint},
      {"position_add_packed", kEmbedding, 3, 1, {}, declare_same, nullptr, positions_of_documents_adjoint}};
  return rules;
}

PackingProblem packing_problem(const Plan& p) {
  if (!p.data.packing) return {};
  if (p.data.tokenizer != kPreparedTokens)
    return {"packing needs samples, and files of text have none: a sample of a prepared data set is what is packed",
            "distsetup data prepare SOURCE... --tokenizer MODEL-FOLDER --output SET, then --data SET"};
  const bool has_kernels = p.hardware.accelerator == Accelerator::kCpu || p.strategy.cp_method == name(CpMethod::kUlysses);
  if (p.mesh.cp > 1 && !has_kernels)
    return {fmt::format("cp {} with {} computes parts of a sequence's scores, for which the native trainer has no kernel on GPUs that "
                        "keeps the documents of a packed row apart",
                        p.mesh.cp, p.strategy.cp_method),
            "--cp-method ulysses, or --packing false"};
  return {};
}

}  // namespace distsetup
