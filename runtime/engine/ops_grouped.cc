// libtorch's GEMM for each expert that has rows, on views of them. Where an expert's rows end is known when the op runs; the views of
// its matrix are made when it is bound.
#include "runtime/engine/ops_grouped.h"

#include <ATen/ATen.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <cstring>
#include <memory>
#include <vector>

#include "runtime/engine/ops.h"

namespace distsetup {
namespace {

using at::Tensor;

Tensor tensor(const Argument& a) {
  const auto type = a.dtype == Dtype::kBf16 ? at::kBFloat16 : a.dtype == Dtype::kF16 ? at::kHalf : at::kFloat;
  return at::from_blob(a.data, a.shape, at::TensorOptions().dtype(type));
}
// The matrices of a stack, one below the other.
std::vector<Tensor> matrices(const Argument& stack, int64_t num_experts) {
  std::vector<Tensor> out;
  const Tensor all = tensor(stack).view({num_experts, stack.dim(0) / num_experts, stack.dim(1)});
  for (int64_t e = 0; e < num_experts; ++e) out.push_back(all.select(0, e));
  return out;
}

struct GroupedViews {
  Tensor first, second;  // rows of experts: what is read, what is written (of weight gradients: read too)
  std::vector<Tensor> matrices;
};
const GroupedViews& grouped_views(const Call& c) { return *static_cast<const GroupedViews*>(c.prepared.get()); }

template <class F>
void each_expert(const Call& c, const F& f) {
  const auto* starts = static_cast<const int64_t*>(c.reads[2].data);
  const auto num_experts = int64_t(grouped_views(c).matrices.size());
  for (int64_t e = 0; e < num_experts; ++e) f(size_t(e), starts[e], starts[e + 1] - starts[e]);
}

// out = a · b, or added to what is there. fp16 is widened, as in ops_aten.cc.
void multiply(Tensor& out, const Tensor& a, const Tensor& b, bool adds) {
  if (out.scalar_type() == at::kHalf) {
    Tensor sum = adds ? out.to(at::kFloat) : at::empty(out.sizes(), at::TensorOptions().dtype(at::kFloat));
    at::cpu::addmm_out(sum, sum, a.to(at::kFloat), b.to(at::kFloat), adds ? 1 : 0, 1);
    out.copy_(sum);
  } else if (adds) {
    at::cpu::addmm_out(out, out, a, b, 1, 1);
  } else {
    at::cpu::mm_out(out, a, b);
  }
}

// x, W, starts -> y = x · Wᵀ; the views have Wᵀ. dy, W, starts -> dx = dy · W.
void grouped(const Call& c) {
  const GroupedViews& v = grouped_views(c);
  each_expert(c, [&](size_t e, int64_t first, int64_t rows) {
    if (rows == 0) return;
    Tensor y = v.second.narrow(0, first, rows);
    multiply(y, v.first.narrow(0, first, rows), v.matrices[e], false);
  });
}
// dy, x, starts -> g = [g +] dyᵀ · x; of an expert without rows [g +] 0
void grouped_dw(const Call& c) {
  const GroupedViews& v = grouped_views(c);
  each_expert(c, [&](size_t e, int64_t first, int64_t rows) {
    Tensor g = v.matrices[e];
    if (rows == 0) {
      if (!c.accumulate) std::memset(g.data_ptr(), 0, size_t(g.numel() * g.element_size()));
      return;
    }
    multiply(g, v.first.narrow(0, first, rows).t(), v.second.narrow(0, first, rows), c.accumulate);
  });
}

}  // namespace

bool bind_grouped_op(const std::string& kernel, Call& call) {
  if (!kernel.starts_with("grouped_linear")) return false;
  const int64_t num_experts = call.reads[2].dim(0) - 1;
  const bool is_dw = kernel == "grouped_linear_dw";
  GroupedViews views{tensor(call.reads[0]), tensor(is_dw ? call.reads[1] : call.writes[0]),
                     matrices(is_dw ? call.writes[0] : call.reads[1], num_experts)};
  if (kernel == "grouped_linear")
    for (Tensor& w : views.matrices) w = w.t();
  call.prepared = std::make_shared<GroupedViews>(std::move(views));
  call.function = is_dw ? grouped_dw : grouped;
  return true;
}

}  // namespace distsetup
