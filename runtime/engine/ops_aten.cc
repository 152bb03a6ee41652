// GEMMs and attention: libtorch's own, called below the dispatcher with outputs in the caller's memory. Views, transposed ones
// included, are made once when the step is bound. In fp32 a GEMM allocates nothing, attention a block of scratch
// (src/plan/workspace.h). Attention is ATen's CPU flash kernel through its dispatch stub: the public functions would allocate their
// results. The forward takes q, k, v as [B, heads, S, d]; the backward takes everything as [B, S, heads, d] (the other order gives
// wrong gradients without an error) and adds to dq, dk, dv, which are zeroed here. Fewer key than query heads are taken as they are.
#include "runtime/engine/ops_aten.h"

#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <cstring>
#include <map>

#include "base/check.h"
#include "runtime/engine/aten_views.h"
#include "runtime/engine/documents.h"

namespace distsetup {
namespace {

using at::Tensor;

at::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return at::kFloat;
    case Dtype::kBf16: return at::kBFloat16;
    case Dtype::kF16: return at::kHalf;
    case Dtype::kF64: return at::kDouble;
    case Dtype::kI64: return at::kLong;
    default: break;
  }
  CHECK(false, "dtype without a size");
  return at::kFloat;
}

Tensor tensor(const Argument& a) { return at::from_blob(a.data, a.shape, at::TensorOptions().dtype(scalar_type(a.dtype))); }

// out = t0 · t1
void gemm(const Call& c) {
  std::vector<Tensor>& t = views_of(c);
  at::cpu::mm_out(t[2], t[0], t[1]);
}
// out = multiplier · t0 · t1
void gemm_scaled(const Call& c) {
  std::vector<Tensor>& t = views_of(c);
  at::cpu::addmm_out(t[2], t[2], t[0], t[1], 0, c.attributes->multiplier);
}
// out = t3 + multiplier · t0 · t1; t3 may be out
void gemm_add(const Call& c) {
  std::vector<Tensor>& t = views_of(c);
  at::cpu::addmm_out(t[2], t[3], t[0], t[1], 1, c.attributes->multiplier);
}

// The same in fp16. Without instructions for it libtorch's products of fp16 are loops over elements, at a fortieth of fp32's speed:
// the operands are widened, the product is that of fp32, and it is rounded once (src/plan/workspace.h).
void gemm_f16(const Call& c, const Tensor* addend, double alpha) {
  std::vector<Tensor>& t = views_of(c);
  const Tensor a = t[0].to(at::kFloat), b = t[1].to(at::kFloat);
  Tensor sum = addend != nullptr ? addend->to(at::kFloat) : at::empty(t[2].sizes(), at::TensorOptions().dtype(at::kFloat));
  at::cpu::addmm_out(sum, sum, a, b, addend != nullptr ? 1 : 0, alpha);
  t[2].copy_(sum);
}
void gemm_of_f16(const Call& c) { gemm_f16(c, nullptr, c.attributes->multiplier); }
void gemm_add_of_f16(const Call& c) { gemm_f16(c, &views_of(c)[3], c.attributes->multiplier); }

void flash(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  at::native::flash_attention_kernel(at::kCPU, t[3], t[4], t[0], t[1], t[2], 0.0, true, std::optional<Tensor>(), score_scale(c));
}
void flash_backward(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  const OpContext& x = *c.context;
  for (const Argument& w : c.writes) std::memset(w.data, 0, size_t(w.dim(0) * w.dim(1) * size_bytes(x.compute)));
  at::native::flash_attention_backward_kernel(at::kCPU, t[6], t[7], t[8], t[0], t[1], t[2], t[3], t[4], t[5], 0.0, true,
                                              std::optional<Tensor>(), score_scale(c));
}

// Rows that hold several documents: each in its turn. Scratch is that of a sequence at most.
template <int kStarts>
void flash_of_documents(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  each_document(static_cast<const int64_t*>(c.reads[kStarts].data), c.context->T, [&](int64_t begin, int64_t end) {
    const auto of = [&](int i, int dimension) { return t[size_t(i)].narrow(dimension, begin, end - begin); };
    const Tensor att = of(3, 1), lse = of(4, 1);
    at::native::flash_attention_kernel(at::kCPU, att, lse, of(0, 2), of(1, 2), of(2, 2), 0.0, true, std::optional<Tensor>(),
                                       score_scale(c));
  });
}
template <int kStarts>
void flash_of_documents_backward(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  for (const Argument& w : c.writes) std::memset(w.data, 0, size_t(num_bytes(w)));
  each_document(static_cast<const int64_t*>(c.reads[kStarts].data), c.context->T, [&](int64_t begin, int64_t end) {
    const auto of = [&](int i) { return t[size_t(i)].narrow(1, begin, end - begin); };
    const Tensor dq = of(6), dk = of(7), dv = of(8);
    at::native::flash_attention_backward_kernel(at::kCPU, dq, dk, dv, of(0), of(1), of(2), of(3), of(4), of(5), 0.0, true,
                                                std::optional<Tensor>(), score_scale(c));
  });
}

template <std::vector<Tensor> (*kShapes)(const Call&, views::TensorOf)>
std::vector<Tensor> of_cpu(const Call& c) {
  return kShapes(c, tensor);
}
Tensor log_sums(const Argument& lse, const OpContext& x) { return tensor(lse).view({x.B, x.S, x.a}); }
// q, k, v, att, lse
template <bool kSplit>
std::vector<Tensor> attention(const Call& c) {
  const auto [q, k, v] = views::attention_inputs(c, tensor, kSplit);
  const OpContext& x = *c.context;
  return {q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), views::heads(tensor(c.writes[0]), x), log_sums(c.writes[1], x)};
}
// datt, q, k, v, att, lse, dq, dk, dv
template <bool kSplit>
std::vector<Tensor> attention_backward(const Call& c) {
  const auto [in, d, datt, att, lse] = views::attention_backward(c, tensor, kSplit);
  return {datt, in.q, in.k, in.v, att, log_sums(*lse, *c.context), d.q, d.k, d.v};
}

// The same without the operand that says where documents begin, over all tokens as one sequence.
template <MakeViews kViews, int kStarts>
std::vector<Tensor> over_all_tokens(const Call& c) {
  OpContext all = *c.context;
  all.B = 1, all.S = all.T;
  Call rest = c;
  rest.context = &all;
  rest.reads.erase(rest.reads.begin() + kStarts);
  return kViews(rest);
}

// What makes an op's views, and the function that then computes with them.
struct AtenOp {
  MakeViews views;
  OpFunction function;
};
template <bool kSplit>
AtenOp packed_attention() {
  constexpr int kStarts = kSplit ? 2 : 1;
  return {over_all_tokens<attention<kSplit>, kStarts>, flash_of_documents<kStarts>};
}
template <bool kSplit>
AtenOp packed_attention_backward() {
  constexpr int kStarts = kSplit ? 3 : 2;
  return {over_all_tokens<attention_backward<kSplit>, kStarts>, flash_of_documents_backward<kStarts>};
}
const std::map<std::string, AtenOp>& table() {
  static const std::map<std::string, AtenOp> entries = {{"linear", {of_cpu<views::linear>, gemm}},
                                                        {"linear_add", {of_cpu<views::linear_add>, gemm_add}},
                                                        {"linear_dx", {of_cpu<views::linear_dx>, gemm}},
                                                        {"linear_dx_add", {of_cpu<views::linear_dx_add>, gemm_add}},
                                                        {"linear_dw", {of_cpu<views::linear_dw>, gemm}},
                                                        {"columns_add", {of_cpu<views::columns_add>, gemm_add}},
                                                        {"columns_dw", {of_cpu<views::columns_dw>, gemm}},
                                                        {"columns_dx", {of_cpu<views::columns_dx>, gemm}},
                                                        {"attention", {attention<false>, flash}},
                                                        {"attention_split", {attention<true>, flash}},
                                                        {"attention_backward", {attention_backward<false>, flash_backward}},
                                                        {"attention_split_backward", {attention_backward<true>, flash_backward}},
                                                        {"attention_packed", packed_attention<false>()},
                                                        {"attention_split_packed", packed_attention<true>()},
                                                        {"attention_packed_backward", packed_attention_backward<false>()},
                                                        {"attention_split_packed_backward", packed_attention_backward<true>()}};
  return entries;
}

}  // namespace

bool bind_aten_op(const std::string& kernel, Call& call) {
  const auto found = table().find(kernel);
  if (found == table().end()) return false;
  call.prepared = std::make_shared<AtenViews>(AtenViews{found->second.views(call)});
  call.function = kernel.ends_with("_dw") && call.accumulate ? gemm_add : found->second.function;
  if (call.context->compute == Dtype::kF16) call.function = call.function == gemm_add ? gemm_add_of_f16 : gemm_of_f16;
  if (call.attributes->multiplier != 1 && call.function == gemm) call.function = gemm_scaled;
  return true;
}

void aten_multiply_add(const MatrixView& out, const MatrixView& addend, const MatrixView& a, const MatrixView& b, double beta,
                       double alpha) {
  const auto view = [](const MatrixView& m) {
    const Tensor t = at::from_blob(m.data, {m.rows, m.columns}, at::TensorOptions().dtype(at::kBFloat16));
    return m.is_transposed ? t.t() : t;
  };
  Tensor to = view(out);
  at::cpu::addmm_out(to, addend.data == out.data ? to : view(addend), view(a), view(b), beta, alpha);
}

}  // namespace distsetup
