#include "runtime/kernels/cuda/attention_documents.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/check.h"
#include "plan/workspace.h"

namespace distsetup::cuda {
namespace {

// log-sum-exps of a group lie as [heads, tokens], group after group.

using at::Tensor;

Tensor rows(const Tensor& t) { return t.flatten(0, 1); }  // [B, S, heads, d] -> [T, heads, d]
Tensor log_sums(const Argument& a) { return tensor(a).view({-1}); }

// q, k, v, att, lse
template <bool kSplit>
std::vector<Tensor> operands(const Call& c) {
  const auto [q, k, v] = views::attention_inputs(c, tensor, kSplit);
  return {rows(q), rows(k), rows(v), rows(views::heads(tensor(c.writes[0]), *c.context)), log_sums(c.writes[1])};
}
// datt, q, k, v, att, lse, dq, dk, dv; in the call cu_seqlens come before att
template <bool kSplit>
std::vector<Tensor> backward_operands(const Call& c) {
  Call unpacked = c;
  unpacked.reads.erase(unpacked.reads.begin() + (kSplit ? 3 : 2));
  const auto [in, d, datt, att, lse] = views::attention_backward(unpacked, tensor, kSplit);
  return {rows(datt), rows(in.q), rows(in.k), rows(in.v), rows(att), log_sums(*lse), rows(d.q), rows(d.k), rows(d.v)};
}

struct DocumentGroup {
  int64_t begin = 0, end = 0;  // tokens
  int64_t first_document = 0, num_documents = 0, longest = 0;
  Tensor of(const Tensor& t) const { return t.narrow(0, begin, end - begin); }
  Tensor sums_of(const Tensor& lse, int64_t heads) const {
    return lse.narrow(0, begin * heads, (end - begin) * heads).view({heads, end - begin});
  }
};
template <class Use>
void each_part(const Call& c, int64_t documents_at_once, const Use& use) {
  CHECK(c.context->documents != nullptr && c.context->documents->size() > 1, "no documents were fed");
  const std::vector<int64_t>& starts = *c.context->documents;
  const auto num_documents = int64_t(starts.size()) - 1;
  for (int64_t first = 0; first < num_documents; first += documents_at_once) {
    DocumentGroup group;
    group.first_document = first, group.num_documents = std::min(documents_at_once, num_documents - first);
    for (int64_t d = first; d < first + group.num_documents; ++d)
      group.longest = std::max(group.longest, starts[size_t(d) + 1] - starts[size_t(d)]);
    group.begin = starts[size_t(first)], group.end = starts[size_t(first + group.num_documents)];
    use(group);
  }
}

// cu_seqlens of a group, which begins at 0.
Tensor starts_of(const DocumentGroup& group, const Argument& cu_seqlens) {
  Tensor starts = at::empty({group.num_documents + 1}, at::TensorOptions().dtype(at::kInt).device(device()));
  to_int32(static_cast<const int64_t*>(cu_seqlens.data) + group.first_document, group.begin, starts.mutable_data_ptr<int32_t>(),
           group.num_documents + 1, compute());
  return starts;
}
// Of single tokens FlashAttention lays queries out in another way.
int64_t longest_of(const DocumentGroup& group) { return std::max<int64_t>(2, group.longest); }
std::optional<int64_t> window_right(const Call& c) { return window_left(c) ? std::optional<int64_t>(0) : std::nullopt; }

template <bool kSplit>
void flash_documents(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  each_part(c, kDocumentsAtOnce, [&](const DocumentGroup& p) {
    const Tensor starts = starts_of(p, c.reads[kSplit ? 2 : 1]);
    const auto result = at::_flash_attention_forward(p.of(t[0]), p.of(t[1]), p.of(t[2]), starts, starts, longest_of(p), longest_of(p),
                                                     0.0, /*is_causal=*/true, false, score_scale(c), window_left(c), window_right(c));
    p.of(t[3]).copy_(std::get<0>(result));
    p.sums_of(t[4], c.context->a).copy_(std::get<1>(result));
  });
}
template <bool kSplit>
void flash_documents_backward(const Call& c) {
  const Deterministic scope(c.context->deterministic);
  const std::vector<Tensor>& t = views_of(c);
  each_part(c, kDocumentsAtOnce, [&](const DocumentGroup& p) {
    const Tensor starts = starts_of(p, c.reads[kSplit ? 3 : 2]);
    const auto [dq, dk, dv] = at::_flash_attention_backward(
        p.of(t[0]), p.of(t[1]), p.of(t[2]), p.of(t[3]), p.of(t[4]), p.sums_of(t[5], c.context->a), starts, starts, longest_of(p),
        longest_of(p), 0.0, /*is_causal=*/true, Tensor(), Tensor(), score_scale(c), window_left(c), window_right(c));
    p.of(t[6]).copy_(dq);
    p.of(t[7]).copy_(dk);
    p.of(t[8]).copy_(dv);
  });
}

Tensor alone(const DocumentGroup& p, const Tensor& t) { return p.of(t).unsqueeze(0); }
Tensor sums_alone(const DocumentGroup& p, const Tensor& lse, const Call& c) { return p.sums_of(lse, c.context->a).unsqueeze(0); }
void efficient_documents(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  each_part(c, 1, [&](const DocumentGroup& p) {
    const std::vector<Tensor> one = {alone(p, t[0]), alone(p, t[1]), alone(p, t[2]), alone(p, t[3]), sums_alone(p, t[4], c)};
    efficient(c, one.data());
  });
}
void efficient_documents_backward(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  each_part(c, 1, [&](const DocumentGroup& p) {
    const std::vector<Tensor> one = {alone(p, t[0]), alone(p, t[1]), alone(p, t[2]),
                                     alone(p, t[3]), alone(p, t[4]), sums_alone(p, t[5], c)};
    const auto [dq, dk, dv] = efficient_gradients(c, one.data());
    alone(p, t[6]).copy_(dq);
    alone(p, t[7]).copy_(dk);
    alone(p, t[8]).copy_(dv);
  });
}

}  // namespace

void each_group_of_sums(const Call& c, const std::function<void(int64_t begin, int64_t end)>& use) {
  each_part(c, is_16_bit(c) ? kDocumentsAtOnce : 1, [&](const DocumentGroup& p) { use(p.begin, p.end); });
}

const std::map<std::string, LibtorchKernel>& document_kernels() {
  static const std::map<std::string, LibtorchKernel> table = {
      {"attention_packed", {operands<false>, efficient_documents, flash_documents<false>}},
      {"attention_split_packed", {operands<true>, efficient_documents, flash_documents<true>}},
      {"attention_packed_backward", {backward_operands<false>, efficient_documents_backward, flash_documents_backward<false>}},
      {"attention_split_packed_backward", {backward_operands<true>, efficient_documents_backward, flash_documents_backward<true>}}};
  return table;
}

}  // namespace distsetup::cuda
