// GEMMs and attention: libtorch's own, called below the dispatcher with outputs in the caller's memory. Views, transposed ones
// included, are made once when the step is bound. In fp32 a GEMM allocates nothing, attention a block of scratch
// (src/plan/workspace.h). Attention is ATen's CPU flash kernel through its dispatch stub: the public functions would allocate their
// results. The forward takes q, k, v as [B, heads, S, d]; the backward takes everything as [B, S, heads, d] (the other order gives
// wrong gradients without an error) and adds to dq, dk, dv, which are zeroed here. Fewer key than query heads are taken as they are.
#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <cstring>
#include <map>

#include "base/check.h"
#include "runtime/engine/aten_views.h"
#include "runtime/engine/ops.h"

namespace distsetup {
namespace {

using at::Tensor;

at::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return at::kFloat;
    case Dtype::kBf16: return at::kBFloat16;
    case Dtype::kF64: return at::kDouble;
    case Dtype::kI64: return at::kLong;
    case Dtype::kCompute: break;
  }
  CHECK(false, "dtype without a size");
  return at::kFloat;
}

Tensor tensor(const Argument& a) { return at::from_blob(a.data, a.shape, at::TensorOptions().dtype(scalar_type(a.dtype))); }

// out = t0 · t1
void gemm(const Call& c) {
  std::vector<Tensor>& t = const_cast<AtenViews&>(*c.views).t;
  at::cpu::mm_out(t[2], t[0], t[1]);
}
// out = t3 + t0 · t1; t3 may be out
void gemm_add(const Call& c) {
  std::vector<Tensor>& t = const_cast<AtenViews&>(*c.views).t;
  at::cpu::addmm_out(t[2], t[3], t[0], t[1]);
}

// Heads [first, first + count) of rows that hold `total` of them.
Tensor head_view(const Argument& a, const OpContext& x, int64_t total, int64_t first, int64_t count) {
  return tensor(a).view({x.B, x.S, total, x.d}).narrow(2, first, count);
}
struct Qkv {
  Tensor q, k, v;
};
Qkv packed(const Argument& qkv, const OpContext& x) {
  const int64_t n = x.a + 2 * x.kv;
  return {head_view(qkv, x, n, 0, x.a), head_view(qkv, x, n, x.a, x.kv), head_view(qkv, x, n, x.a + x.kv, x.kv)};
}
Qkv split(const Argument& qk, const Argument& qkv, const OpContext& x) {
  const int64_t n = x.a + x.kv;
  return {head_view(qk, x, n, 0, x.a), head_view(qk, x, n, x.a, x.kv), packed(qkv, x).v};
}
Tensor heads(const Argument& a, const OpContext& x) { return tensor(a).view({x.B, x.S, x.a, x.d}); }
Tensor rows(const Argument& lse, const OpContext& x) { return tensor(lse).view({x.B, x.S, x.a}); }

void flash(const Call& c) {
  const std::vector<Tensor>& t = c.views->t;
  at::native::flash_attention_kernel(at::kCPU, t[3], t[4], t[0], t[1], t[2], 0.0, true, std::optional<Tensor>(),
                                     std::optional<double>());
}
void flash_backward(const Call& c) {
  const std::vector<Tensor>& t = c.views->t;
  const OpContext& x = *c.context;
  for (const Argument& w : c.writes) std::memset(w.data, 0, size_t(w.dim(0) * w.dim(1) * size_bytes(x.compute)));
  at::native::flash_attention_backward_kernel(at::kCPU, t[6], t[7], t[8], t[0], t[1], t[2], t[3], t[4], t[5], 0.0, true,
                                              std::optional<Tensor>(), std::optional<double>());
}

// Each returns its views; the function to call stands beside it in the table.
using Views = std::vector<Tensor> (*)(const Call&);

std::vector<Tensor> linear(const Call& c) { return {tensor(c.reads[0]), tensor(c.reads[1]).t(), tensor(c.writes[0])}; }
std::vector<Tensor> linear_add(const Call& c) {
  return {tensor(c.reads[0]), tensor(c.reads[1]).t(), tensor(c.writes[0]), tensor(c.reads[2])};
}
// dy, W -> dx = dy · W
std::vector<Tensor> linear_dx(const Call& c) { return {tensor(c.reads[0]), tensor(c.reads[1]), tensor(c.writes[0])}; }
// dy, x -> g = [g +] dyᵀ · x
std::vector<Tensor> linear_dw(const Call& c) {
  const Tensor g = tensor(c.writes[0]);
  return {tensor(c.reads[0]).t(), tensor(c.reads[1]), g, g};
}
std::vector<Tensor> attention_views(const Call& c, const Qkv& in) {
  const OpContext& x = *c.context;
  return {in.q.transpose(1, 2), in.k.transpose(1, 2), in.v.transpose(1, 2), heads(c.writes[0], x), rows(c.writes[1], x)};
}
std::vector<Tensor> attention(const Call& c) { return attention_views(c, packed(c.reads[0], *c.context)); }
std::vector<Tensor> attention_split(const Call& c) { return attention_views(c, split(c.reads[0], c.reads[1], *c.context)); }
std::vector<Tensor> backward_views(const Call& c, const Qkv& in, size_t att, const Qkv& d) {
  const OpContext& x = *c.context;
  return {heads(c.reads[0], x), in.q, in.k, in.v, heads(c.reads[att], x), rows(c.reads[att + 1], x), d.q, d.k, d.v};
}
// datt, qkv, att, lse -> dqkv
std::vector<Tensor> attention_backward(const Call& c) {
  return backward_views(c, packed(c.reads[1], *c.context), 2, packed(c.writes[0], *c.context));
}
// datt, qk, qkv, att, lse -> dqk, dqkv (its v columns)
std::vector<Tensor> attention_split_backward(const Call& c) {
  return backward_views(c, split(c.reads[1], c.reads[2], *c.context), 3, split(c.writes[0], c.writes[1], *c.context));
}

struct Entry {
  Views views;
  OpFunction function;
};
const std::map<std::string, Entry>& table() {
  static const std::map<std::string, Entry> entries = {{"linear", {linear, gemm}},
                                                       {"linear_add", {linear_add, gemm_add}},
                                                       {"linear_dx", {linear_dx, gemm}},
                                                       {"linear_dw", {linear_dw, gemm}},
                                                       {"attention", {attention, flash}},
                                                       {"attention_split", {attention_split, flash}},
                                                       {"attention_backward", {attention_backward, flash_backward}},
                                                       {"attention_split_backward", {attention_split_backward, flash_backward}}};
  return entries;
}

}  // namespace

bool bind_aten_op(const std::string& kernel, Call& call) {
  const auto found = table().find(kernel);
  if (found == table().end()) return false;
  call.views = std::make_shared<AtenViews>(AtenViews{found->second.views(call)});
  call.function = kernel == "linear_dw" && call.accumulate ? gemm_add : found->second.function;
  return true;
}

}  // namespace distsetup
