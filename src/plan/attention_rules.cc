// Attention, and how ranks that share sequences attend (context_parallel.h). FLOPs as in FlashAttention-2 (arXiv 2307.08691, section
// 4.1: backward computes the scores again, 2.5 times the forward), counted for the half of the scores that a causal mask leaves.
#include "plan/attention_rules.h"

#include <fmt/format.h>

#include "plan/ring_attention.h"

namespace distsetup {
namespace {

using Builder = ProgramBuilder;

// --- attention: qkv | qk, qkv -> att, lse

void declare_attention(const Op& op, Builder& b) {
  const std::string rows = b.shape(op.reads[0])[0];
  b.declare(op.writes[0], {rows, "a*d"});
  b.declare(op.writes[1], {rows, "a"}, Dtype::kF32);
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

}  // namespace

std::string attention_work(const Op& op, std::string_view times, std::string_view sequences) {
  if (op.attributes.window == 0) return fmt::format("{}*T*S*a*d", times);
  const std::string w = fmt::format("min({},S)", op.attributes.window);  // the first w queries of a sequence see fewer
  return fmt::format("{}*{}*a*d*{}*(2*S-{})", times, sequences, w, w);
}
// A rank's share of it, where several share sequences.
std::string shared_attention_work(const Op& op, std::string_view times) {
  if (op.attributes.window == 0) return attention_work(op, times);
  return fmt::format("ceil_div({},cp)", attention_work(op, times, "B"));
}

const std::vector<KernelRule>& attention_rules() {
  using enum OpKind;
  static const std::vector<KernelRule> rules = [] {
    std::vector<KernelRule> all = {
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
        {"all_to_all", kAllToAll, 1, 1, {}, declare_same, nullptr, exchange_adjoint}};
    for (const KernelRule& rule : ring_rules()) all.push_back(rule);
    return all;
  }();
  return rules;
}

}  // namespace distsetup
