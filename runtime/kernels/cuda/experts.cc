// Products of experts, in bf16 on Hopper and later: CUTLASS's grouped kernel through libtorch, which reads on the device where an
// expert's rows end and writes into the arena. Elsewhere, and where gradients are added up: libtorch's GEMM for each expert that has
// rows; where they end is read by the host, which waits for the stream once a call.
// Operand order is the program's (src/plan/expert_rules.cc).
#include "runtime/kernels/cuda/experts.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cuda_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cuda_dispatch.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "plan/expert_rules.h"
#include "runtime/kernels/cuda/ops.h"
#include "runtime/kernels/cuda/own_ops.h"

// In libtorch_cuda; its header is not in the wheel (aten/src/ATen/native/cuda/GroupMM.h of PyTorch 2.11).
namespace at::cuda::detail {
void bf16bf16_grouped_mm(at::Tensor mat_a, at::Tensor mat_b, std::optional<at::Tensor> offs, std::optional<at::Tensor> bias,
                         at::Tensor& out);
}  // namespace at::cuda::detail

namespace distsetup::cuda {
namespace {

using at::Tensor;

template <class T>
const T* in(const Call& c, size_t i) {
  return i < c.reads.size() ? static_cast<const T*>(c.reads[i].data) : nullptr;
}
template <class T>
T* out(const Call& c, size_t i) {
  return static_cast<T*>(c.writes[i].data);
}
const void* bytes_in(const Call& c, size_t i) { return in<void>(c, i); }
void* bytes_out(const Call& c, size_t i) { return out<void>(c, i); }
double factor(const Call& c) { return c.attributes->multiplier; }

// `of` has a column for each of a token's experts.
Router router(const Call& c, RouterScore score, const Argument& logits, const Argument& of) {
  const OpAttributes& a = *c.attributes;
  return {score, logits.dim(1), of.dim(1), a.groups, a.groups_chosen, a.normalized != 0, float(factor(c))};
}
// logits[, bias] -> weights, choice
template <RouterScore kScore>
void choose(const Call& c) {
  route(element(c), bytes_in(c, 0), bytes_in(c, 1), out<float>(c, 0), out<int64_t>(c, 1), c.reads[0].dim(0),
        router(c, kScore, c.reads[0], c.writes[0]), compute());
}
// dweights, logits, choice[, before] -> dlogits[, g:bias]
template <RouterScore kScore>
void choose_backward(const Call& c) {
  route_backward(element(c), in<float>(c, 0), bytes_in(c, 1), in<int64_t>(c, 2), bytes_in(c, 3), bytes_out(c, 0), c.reads[0].dim(0),
                 router(c, kScore, c.reads[1], c.reads[0]), compute());
  if (c.writes.size() > 1)
    count_above_share(element(c), in<int64_t>(c, 2), bytes_out(c, 1), numel(c.reads[2]), c.reads[1].dim(1), c.accumulate, compute());
}
// choice -> order, place, starts
void sort(const Call& c) {
  const int64_t N = numel(c.reads[0]), num_experts = c.writes[2].dim(0) - 1;
  sort_experts(in<int64_t>(c, 0), out<int64_t>(c, 0), out<int64_t>(c, 1), out<int64_t>(c, 2), N, num_experts,
               capacity_rows(c.attributes->capacity, N, num_experts), c.writes[0].dim(0), compute());
}
// x, order -> rows
void to_rows(const Call& c) {
  const int64_t N = c.writes[0].dim(0);
  permute(element(c), bytes_in(c, 0), in<int64_t>(c, 1), bytes_out(c, 0), N, c.reads[0].dim(1),
          choices_of_token(*c.attributes, N, c.reads[0].dim(0)), compute());
}
// rows, place[, addend] -> y
void to_tokens(const Call& c) {
  const int64_t T = c.writes[0].dim(0);
  unpermute(element(c), bytes_in(c, 0), in<int64_t>(c, 1), bytes_in(c, 2), bytes_out(c, 0), T, c.reads[0].dim(1),
            numel(c.reads[1]) / T, compute());
}
void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(fmt::format("CUDA {}: {}", what, cudaGetErrorString(error)));
}
// Choices without a row have no gradient.
void clear_choices(const Call& c, size_t write) {
  if (c.attributes->capacity > 0)
    check_cuda(cudaMemsetAsync(bytes_out(c, write), 0, size_t(numel(c.writes[write])) * sizeof(float), compute()), "memset");
}
// gu, weights, order -> m
template <Activation kF>
void weighted(const Call& c) {
  gated_weighted(element(c), kF, bytes_in(c, 0), in<float>(c, 1), {in<int64_t>(c, 2)}, bytes_out(c, 0), c.writes[0].dim(0),
                 c.writes[0].dim(1), compute());
}
// dm, gu, weights, order -> dgu, dweights
template <Activation kF>
void weighted_backward(const Call& c) {
  clear_choices(c, 1);
  gated_weighted_backward(element(c), kF, bytes_in(c, 0), bytes_in(c, 1), in<float>(c, 2), {in<int64_t>(c, 3)}, bytes_out(c, 0),
                          out<float>(c, 1), c.reads[0].dim(0), c.reads[0].dim(1), compute());
}
// starts of all ranks -> starts of this rank's experts, among the rows that come to them
void take_starts(const Call& c) {
  const int64_t each = c.writes[0].dim(0) - 1;
  own_starts(in<int64_t>(c, 0), out<int64_t>(c, 0), c.reads[0].dim(0), c.reads[0].dim(1) - 1, c.context->ep_index * each, each,
             compute());
}
// weights, order -> weights of rows; and back
void weights_to_rows(const Call& c) {
  sort_weights(in<float>(c, 0), in<int64_t>(c, 1), out<float>(c, 0), c.writes[0].dim(0), compute());
}
void weights_of_rows(const Call& c) {
  clear_choices(c, 0);
  unsort_weights(in<float>(c, 0), in<int64_t>(c, 1), out<float>(c, 0), c.reads[0].dim(0), compute());
}
// gu, weights of rows, starts -> m
template <Activation kF>
void weighted_rows(const Call& c) {
  gated_weighted(element(c), kF, bytes_in(c, 0), in<float>(c, 1), own_rows(c.reads[2]), bytes_out(c, 0), c.writes[0].dim(0),
                 c.writes[0].dim(1), compute());
}
// dm, gu, weights of rows, starts -> dgu, dweights of rows
template <Activation kF>
void weighted_rows_backward(const Call& c) {
  gated_weighted_backward(element(c), kF, bytes_in(c, 0), bytes_in(c, 1), in<float>(c, 2), own_rows(c.reads[3]), bytes_out(c, 0),
                          out<float>(c, 1), c.reads[0].dim(0), c.reads[0].dim(1), compute());
}
// m, s -> rows of m times sigmoid(s)
void scale_rows(const Call& c) {
  sigmoid_rows(element(c), bytes_in(c, 0), bytes_in(c, 1), bytes_out(c, 0), c.writes[0].dim(0), c.writes[0].dim(1), compute());
}
// d, m, s -> dm, ds
void scale_rows_backward(const Call& c) {
  sigmoid_rows_backward(element(c), bytes_in(c, 0), bytes_in(c, 1), bytes_in(c, 2), bytes_out(c, 0), bytes_out(c, 1),
                        c.reads[0].dim(0), c.reads[0].dim(1), compute());
}
// router_sums -> router_sums
void clear_sums(const Call& c) {
  check_cuda(cudaMemsetAsync(bytes_out(c, 0), 0, size_t(numel(c.writes[0])) * sizeof(double), compute()), "memset");
}
// router_sums -> router_sums
void copy_sums(const Call& c) {
  const size_t bytes = size_t(numel(c.writes[0])) * sizeof(double);
  check_cuda(cudaMemcpyAsync(bytes_out(c, 0), bytes_in(c, 0), bytes, cudaMemcpyDeviceToDevice, compute()), "copy_routes");
}
// logits, choice, router_sums -> router_sums
void add_routes(const Call& c) {
  count_routes(element(c), bytes_in(c, 0), in<int64_t>(c, 1), out<double>(c, 0), c.reads[0].dim(0), c.reads[0].dim(1),
               c.reads[1].dim(1), compute());
}
// logits, router_sums, router_scale[, before] -> dlogits
void add_routes_backward(const Call& c) {
  balance_backward(element(c), bytes_in(c, 0), in<double>(c, 1), in<double>(c, 2), bytes_in(c, 3), bytes_out(c, 0), c.reads[0].dim(0),
                   c.reads[0].dim(1), c.attributes->chosen, factor(c), compute());
}
// router_sums of all ranks of tp -> router_sums
void add_up_routes(const Call& c) { sum_routes(in<double>(c, 0), out<double>(c, 0), c.reads[0].dim(0), c.reads[0].dim(2), compute()); }
// router_sums, router_scale, loss -> loss
void add_balance_loss(const Call& c) {
  balance_loss(in<double>(c, 0), in<double>(c, 1), out<double>(c, 0), c.reads[0].dim(1), c.attributes->chosen, factor(c), compute());
}

// logits, router_scale, loss -> loss
void add_z_loss(const Call& c) {
  router_z_loss(element(c), bytes_in(c, 0), in<double>(c, 1), out<double>(c, 0), c.reads[0].dim(0), c.reads[0].dim(1), factor(c),
                compute());
}
// logits, router_scale[, before] -> dlogits
void add_z_loss_backward(const Call& c) {
  router_z_loss_backward(element(c), bytes_in(c, 0), in<double>(c, 1), bytes_in(c, 2), bytes_out(c, 0), c.reads[0].dim(0),
                         c.reads[0].dim(1), factor(c), compute());
}

// --- products of all experts

// `starts` on the host, in memory that a copy from the device does not wait for.
class HostStarts {
 public:
  explicit HostStarts(int64_t num_experts) : n_(num_experts + 1) {
    check_cuda(cudaHostAlloc(reinterpret_cast<void**>(&data_), size_t(n_) * sizeof(int64_t), cudaHostAllocDefault), "pinned memory");
  }
  HostStarts(const HostStarts&) = delete;
  HostStarts& operator=(const HostStarts&) = delete;
  ~HostStarts() { cudaFreeHost(data_); }
  const int64_t* read(const void* starts) const {
    check_cuda(cudaMemcpyAsync(data_, starts, size_t(n_) * sizeof(int64_t), cudaMemcpyDeviceToHost, compute()), "copy from the GPU");
    check_cuda(cudaStreamSynchronize(compute()), "copy from the GPU");
    return data_;
  }

 private:
  int64_t n_ = 0;
  int64_t* data_ = nullptr;
};

struct ProductViews {
  Tensor first, second;  // rows of experts: what is read, what is written (of weight gradients: read too)
  Tensor stack;          // the matrices, one for each expert
  std::unique_ptr<HostStarts> starts;
};
ProductViews& product_views(const Call& c) { return *static_cast<ProductViews*>(c.prepared.get()); }

template <class F>
void each_expert(const Call& c, const F& f) {
  const ProductViews& v = product_views(c);
  const int64_t* starts = v.starts->read(c.reads[2].data);
  for (int64_t e = 0; e < v.stack.size(0); ++e) f(v.stack.select(0, e), starts[e], starts[e + 1] - starts[e]);
}
// x, W, starts -> y = x · Wᵀ; the stack has Wᵀ. dy, W, starts -> dx = dy · W.
void each_product(const Call& c) {
  const ProductViews& v = product_views(c);
  each_expert(c, [&](const Tensor& matrix, int64_t first, int64_t rows) {
    if (rows == 0) return;
    Tensor y = v.second.narrow(0, first, rows);
    at::cuda::mm_out(y, v.first.narrow(0, first, rows), matrix);
  });
}
// dy, x, starts -> g = [g +] dyᵀ · x; of an expert without rows [g +] 0
void each_dw(const Call& c) {
  const ProductViews& v = product_views(c);
  each_expert(c, [&](Tensor g, int64_t first, int64_t rows) {
    if (rows == 0) {
      if (!c.accumulate) check_cuda(cudaMemsetAsync(g.data_ptr(), 0, size_t(g.numel() * g.element_size()), compute()), "memset");
      return;
    }
    const Tensor dy = v.first.narrow(0, first, rows).t(), x = v.second.narrow(0, first, rows);
    if (c.accumulate)
      at::cuda::addmm_out(g, g, dy, x, 1, 1);
    else
      at::cuda::mm_out(g, dy, x);
  });
}

Tensor ends_of(const Call& c, int64_t num_experts) {
  Tensor ends = at::empty({num_experts}, at::TensorOptions().dtype(at::kInt).device(device()));
  to_int32(in<int64_t>(c, 2) + 1, 0, ends.mutable_data_ptr<int32_t>(), num_experts, compute());
  return ends;
}
void one_product(const Call& c) {
  ProductViews& v = product_views(c);
  at::cuda::detail::bf16bf16_grouped_mm(v.first, v.stack, ends_of(c, v.stack.size(0)), std::nullopt, v.second);
}
void one_dw(const Call& c) {
  ProductViews& v = product_views(c);
  const int64_t num_experts = v.stack.size(0);
  at::cuda::detail::bf16bf16_grouped_mm(v.first.t(), v.second, ends_of(c, num_experts), std::nullopt, v.stack);
  clear_idle(element(c), in<int64_t>(c, 2), v.stack.data_ptr(), v.stack[0].numel(), num_experts, compute());
}

// What CUTLASS's grouped kernel takes through libtorch: bf16, rows of 16 bytes, fewer than 1,024 experts.
bool has_grouped_kernel(const Call& c, const ProductViews& v) {
  constexpr int kHopper = 9;
  constexpr int64_t kRowElements = 8, kExperts = 1024;
  const auto is_whole = [](const Tensor& t) {
    return t.size(-1) % kRowElements == 0 && reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 == 0;
  };
  return capability_major() >= kHopper && element(c) == Element::kBf16 && v.stack.size(0) < kExperts && v.first.size(0) > 0 &&
         is_whole(v.first) && is_whole(v.second) && is_whole(v.stack) && v.stack.size(-2) % kRowElements == 0;
}

}  // namespace

const std::map<std::string, OpFunction>& expert_kernels() {
  static const std::map<std::string, OpFunction> table = {
      {"route_softmax", choose<RouterScore::kSoftmax>},
      {"route_softmax_backward", choose_backward<RouterScore::kSoftmax>},
      {"route_softmax_biased", choose<RouterScore::kSoftmax>},
      {"route_softmax_biased_backward", choose_backward<RouterScore::kSoftmax>},
      {"route_sigmoid", choose<RouterScore::kSigmoid>},
      {"route_sigmoid_backward", choose_backward<RouterScore::kSigmoid>},
      {"sort_experts", sort},
      {"permute", to_rows},
      {"unpermute", to_tokens},
      {"unpermute_add", to_tokens},
      {"swiglu_weighted", weighted<Activation::kSilu>},
      {"swiglu_weighted_backward", weighted_backward<Activation::kSilu>},
      {"geglu_weighted", weighted<Activation::kGelu>},
      {"geglu_weighted_backward", weighted_backward<Activation::kGelu>},
      {"geglu_tanh_weighted", weighted<Activation::kGeluTanh>},
      {"geglu_tanh_weighted_backward", weighted_backward<Activation::kGeluTanh>},
      {"swiglu_weighted_rows", weighted_rows<Activation::kSilu>},
      {"swiglu_weighted_rows_backward", weighted_rows_backward<Activation::kSilu>},
      {"geglu_weighted_rows", weighted_rows<Activation::kGelu>},
      {"geglu_weighted_rows_backward", weighted_rows_backward<Activation::kGelu>},
      {"geglu_tanh_weighted_rows", weighted_rows<Activation::kGeluTanh>},
      {"geglu_tanh_weighted_rows_backward", weighted_rows_backward<Activation::kGeluTanh>},
      {"own_starts", take_starts},
      {"sort_weights", weights_to_rows},
      {"unsort_weights", weights_of_rows},
      {"sigmoid_rows", scale_rows},
      {"sigmoid_rows_backward", scale_rows_backward},
      {"clear_routes", clear_sums},
      {"copy_routes", copy_sums},
      {"count_routes", add_routes},
      {"count_routes_backward", add_routes_backward},
      {"sum_routes", add_up_routes},
      {"balance_loss", add_balance_loss},
      {"router_z_loss", add_z_loss},
      {"router_z_loss_of_all", add_z_loss},
      {"router_z_loss_backward", add_z_loss_backward}};
  return table;
}

std::string experts_refusal(const std::string& kernel, const Call& call) {
  if (!kernel.starts_with("route_")) return "";
  const bool is_backward = kernel.ends_with("_backward");
  const int64_t num_experts = call.reads[is_backward ? 1 : 0].dim(1), k = (is_backward ? call.reads[0] : call.writes[0]).dim(1);
  if (num_experts <= kMostExperts && k <= kMostChosen) return "";
  return fmt::format("a router on CUDA has up to {} experts, {} of them for a token; this model's has {} and {}", kMostExperts,
                     kMostChosen, num_experts, k);
}

bool bind_grouped_op(const std::string& kernel, Call& call) {
  if (!kernel.starts_with("grouped_linear")) return false;
  const int64_t num_experts = call.reads[2].dim(0) - 1;
  const bool is_dw = kernel == "grouped_linear_dw";
  const Argument& stack = is_dw ? call.writes[0] : call.reads[1];
  ProductViews views{tensor(call.reads[0]), tensor(is_dw ? call.reads[1] : call.writes[0]),
                     tensor(stack).view({num_experts, stack.dim(0) / num_experts, stack.dim(1)}),
                     std::make_unique<HostStarts>(num_experts)};
  if (has_grouped_kernel(call, views) && !(is_dw && call.accumulate))
    call.function = is_dw ? one_dw : one_product;
  else
    call.function = is_dw ? each_dw : each_product;
  if (kernel == "grouped_linear") views.stack = views.stack.transpose(1, 2);
  call.prepared = std::make_shared<ProductViews>(std::move(views));
  return true;
}

}  // namespace distsetup::cuda
