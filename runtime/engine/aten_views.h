// Tensors over a call's operands, made once when the step is bound, as libtorch's kernels of every device take them. A device brings
// its own tensor_of (which device, which dtypes); the shapes are the same for all.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/engine/ops.h"

namespace distsetup {

struct AtenViews {
  std::vector<at::Tensor> t;
};
using MakeViews = std::vector<at::Tensor> (*)(const Call&);
inline std::vector<at::Tensor>& views_of(const Call& c) { return static_cast<AtenViews*>(c.prepared.get())->t; }

namespace views {

using TensorOf = at::Tensor (*)(const Argument&);

// x, W -> y = x · Wᵀ, as {x, Wᵀ, y}
inline std::vector<at::Tensor> linear(const Call& c, TensorOf of) { return {of(c.reads[0]), of(c.reads[1]).t(), of(c.writes[0])}; }
// x, W, residual -> y = residual + x · Wᵀ, as {x, Wᵀ, y, residual}: one object where the two share bytes, so that nothing is copied
inline std::vector<at::Tensor> linear_add(const Call& c, TensorOf of) {
  const at::Tensor y = of(c.writes[0]);
  return {of(c.reads[0]), of(c.reads[1]).t(), y, c.reads[2].data == c.writes[0].data ? y : of(c.reads[2])};
}
// dy, W -> dx = dy · W
inline std::vector<at::Tensor> linear_dx(const Call& c, TensorOf of) { return {of(c.reads[0]), of(c.reads[1]), of(c.writes[0])}; }
// dy, W, residual -> dx = residual + dy · W, as {dy, W, dx, residual}
inline std::vector<at::Tensor> linear_dx_add(const Call& c, TensorOf of) {
  const at::Tensor dx = of(c.writes[0]);
  return {of(c.reads[0]), of(c.reads[1]), dx, c.reads[2].data == c.writes[0].data ? dx : of(c.reads[2])};
}
// dy, x -> g = [g +] dyᵀ · x, as {dyᵀ, x, g, g}
inline std::vector<at::Tensor> linear_dw(const Call& c, TensorOf of) {
  const at::Tensor g = of(c.writes[0]);
  return {of(c.reads[0]).t(), of(c.reads[1]), g, g};
}

// low, W, y -> y's columns = y's columns + low's columns · Wᵀ, as {low, Wᵀ, y, y}; W's rows are y's columns
inline at::Tensor columns_of(const at::Tensor& rows, int64_t first, int64_t count) { return rows.narrow(1, first, count); }
inline std::vector<at::Tensor> columns_add(const Call& c, TensorOf of) {
  const at::Tensor y = columns_of(of(c.writes[0]), c.attributes->column, c.reads[1].dim(0));
  return {columns_of(of(c.reads[0]), c.attributes->low_column, c.reads[1].dim(1)), of(c.reads[1]).t(), y, y};
}
// dy, low -> g = [g +] dyᵀ · low, as {dyᵀ, low, g, g}
inline std::vector<at::Tensor> columns_dw(const Call& c, TensorOf of) {
  const at::Tensor g = of(c.writes[0]);
  return {columns_of(of(c.reads[0]), c.attributes->column, g.size(0)).t(),
          columns_of(of(c.reads[1]), c.attributes->low_column, g.size(1)), g, g};
}
// dy, W[, dlow] -> dlow's columns = dy · W, as {dy, W, dlow}
inline std::vector<at::Tensor> columns_dx(const Call& c, TensorOf of) {
  const at::Tensor w = of(c.reads[1]);
  return {columns_of(of(c.reads[0]), c.attributes->column, w.size(0)), w,
          columns_of(of(c.writes[0]), c.attributes->low_column, w.size(1))};
}

// [B, S, count, d]: heads first .. first + count of rows that hold `total` of them.
inline at::Tensor head_range(const at::Tensor& rows, const OpContext& x, int64_t total, int64_t first, int64_t count) {
  return rows.view({x.B, x.S, total, x.d}).narrow(2, first, count);
}
// [B, S, a, d]
inline at::Tensor heads(const at::Tensor& rows, const OpContext& x) { return rows.view({x.B, x.S, x.a, x.d}); }

struct Qkv {
  at::Tensor q, k, v;
};
// Rows of q, k and v heads.
inline Qkv packed(const at::Tensor& qkv, const OpContext& x) {
  const int64_t n = x.a + 2 * x.kv;
  return {head_range(qkv, x, n, 0, x.a), head_range(qkv, x, n, x.a, x.kv), head_range(qkv, x, n, x.a + x.kv, x.kv)};
}
// Normed q and k in rows of their own, v still where all three were made.
inline Qkv split(const at::Tensor& qk, const at::Tensor& qkv, const OpContext& x) {
  const int64_t n = x.a + x.kv;
  return {head_range(qk, x, n, 0, x.a), head_range(qk, x, n, x.a, x.kv), packed(qkv, x).v};
}

// The operands of attention with packed or split rows, forward (qkv | qk, qkv) and backward (datt, qkv | qk, qkv, att, lse).
struct AttentionBackward {
  Qkv in, gradient;
  at::Tensor datt, att;
  const Argument* log_sums;  // its shape is the device's own
};
inline Qkv attention_inputs(const Call& c, TensorOf of, bool is_split) {
  return is_split ? split(of(c.reads[0]), of(c.reads[1]), *c.context) : packed(of(c.reads[0]), *c.context);
}
inline AttentionBackward attention_backward(const Call& c, TensorOf of, bool is_split) {
  const OpContext& x = *c.context;
  const size_t att = is_split ? 3 : 2;
  const Qkv in = is_split ? split(of(c.reads[1]), of(c.reads[2]), x) : packed(of(c.reads[1]), x);
  const Qkv gradient = is_split ? split(of(c.writes[0]), of(c.writes[1]), x) : packed(of(c.writes[0]), x);
  return {in, gradient, heads(of(c.reads[0]), x), heads(of(c.reads[att]), x), &c.reads[att + 1]};
}

}  // namespace views
}  // namespace distsetup
