// The kernel names of programs bound to CUDA. GEMMs are libtorch's with outputs in the arena. Attention in bf16:
//   cuDNN's kernels on Hopper and later, forward and backward, where there is no window and it takes the sizes (has_cudnn_attention):
//         twice as fast as FlashAttention 2 there. They return fresh tensors, which are copied into the arena and count as workspace.
//   FlashAttention 2 elsewhere: the forward writes into the arena (its C++ entry takes an output), the backward returns fresh tensors.
//   Both backwards add to an fp32 accumulator of dq in any order. Where the plan asks for the same bits in every run
//         (TrainPlan::deterministic), FlashAttention's deterministic backward is taken: an accumulator per split of the keys. Both
//         libraries' log-sum-exps are natural logarithms, so that either backward follows either forward.
//   fp32: the memory-efficient kernel; everything it returns is copied, keys and values are repeated to the number of query heads. One
//         split of the keys, so always the same bits. A fallback for comparisons, not for speed.
// log-sum-exps lie as [B, heads, S] here and as [B, S, heads] on CPU: forward and backward of one device agree, nobody else reads
// them. What a kernel cannot do is refused when a list is bound, by name.
#include "runtime/kernels/cuda/ops.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_cudnn_attention_backward.h>
#include <ATen/ops/_cudnn_attention_forward.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/addmm_cuda_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm_cuda_dispatch.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>
#include <stdexcept>

#include "base/check.h"
#include "runtime/engine/aten_views.h"
#include "runtime/kernels/cuda/own_ops.h"

// In libtorch_cuda; its header is not in the wheel whole (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.h of
// PyTorch 2.11).
namespace pytorch_flash {
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> mha_fwd(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::optional<at::Tensor>& out,
    std::optional<at::Tensor>& alibi_slopes, float p_dropout, float softmax_scale, bool is_causal, int window_size_left,
    int window_size_right, float softcap, bool return_softmax, std::optional<at::Generator> generator);
}  // namespace pytorch_flash

namespace distsetup::cuda {
namespace {

using at::Tensor;

constexpr int64_t kCausalFromTopLeft = 1;    // sdp::CustomMaskType
constexpr int64_t kLogSumExpAlignment = 32;  // kAlignLSE of the memory-efficient kernel

struct Streams {
  int device_index = 0;
  int major = 0;  // of the compute capability
  std::array<StreamHandle, 3> of{};
};
Streams streams;  // one device per process

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(fmt::format("CUDA {}: {}", what, cudaGetErrorString(error)));
}

// --- libtorch's. Views are made once, when the step is bound.

c10::Device device() { return c10::Device(c10::kCUDA, c10::DeviceIndex(streams.device_index)); }

Tensor tensor(const Argument& a) {
  const at::ScalarType type = a.dtype == Dtype::kBf16 ? at::kBFloat16 : at::kFloat;
  return at::for_blob(a.data, a.shape).options(at::TensorOptions().dtype(type).device(device())).target_device(device()).make_tensor();
}

// out = t0 · t1
void gemm(const Call& c) {
  std::vector<Tensor>& t = views_of(c);
  at::cuda::mm_out(t[2], t[0], t[1]);
}
// out = multiplier · t0 · t1
void gemm_scaled(const Call& c) {
  std::vector<Tensor>& t = views_of(c);
  at::cuda::addmm_out(t[2], t[2], t[0], t[1], 0, c.attributes->multiplier);
}
// out = t3 + multiplier · t0 · t1
void gemm_add(const Call& c) {
  std::vector<Tensor>& t = views_of(c);
  at::cuda::addmm_out(t[2], t[3], t[0], t[1], 1, c.attributes->multiplier);
}

template <std::vector<Tensor> (*kShapes)(const Call&, views::TensorOf)>
std::vector<Tensor> of_cuda(const Call& c) {
  return kShapes(c, tensor);
}
Tensor log_sums(const Argument& a, const OpContext& x) { return tensor(a).view({x.B, x.a, x.S}); }
// q, k, v, att, lse
template <bool kSplit>
std::vector<Tensor> attention(const Call& c) {
  const auto [q, k, v] = views::attention_inputs(c, tensor, kSplit);
  return {q, k, v, views::heads(tensor(c.writes[0]), *c.context), log_sums(c.writes[1], *c.context)};
}
// datt, q, k, v, att, lse, dq, dk, dv
template <bool kSplit>
std::vector<Tensor> attention_backward(const Call& c) {
  const auto [in, d, datt, att, lse] = views::attention_backward(c, tensor, kSplit);
  return {datt, in.q, in.k, in.v, att, log_sums(*lse, *c.context), d.q, d.k, d.v};
}

// Keys that a query sees, itself included, where that is not all before it; and those of them before it.
std::optional<int64_t> window_keys(const Call& c) {
  const int64_t window = c.attributes->window;
  return window > 0 && window < c.context->S ? std::optional<int64_t>(window) : std::nullopt;
}
std::optional<int64_t> window_left(const Call& c) {
  const std::optional<int64_t> keys = window_keys(c);
  return keys ? std::optional<int64_t>(*keys - 1) : std::nullopt;
}

void flash(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  std::optional<Tensor> output = t[3], no_slopes;
  const auto result = pytorch_flash::mha_fwd(t[0], t[1], t[2], output, no_slopes, 0.f, float(score_scale(c)), /*is_causal=*/true,
                                             int(window_left(c).value_or(-1)), window_left(c) ? 0 : -1, 0.f, false, std::nullopt);
  t[4].copy_(std::get<4>(result));
}

// Asks libtorch for algorithms that always add in the same order.
class Deterministic {
 public:
  explicit Deterministic(bool on) : on_(on) {
    if (on_) at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  }
  ~Deterministic() {
    if (on_) at::globalContext().setDeterministicAlgorithms(false, false);
  }

 private:
  bool on_;
};

void flash_backward(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  const Deterministic scope(c.context->deterministic);
  const auto [dq, dk, dv] =
      at::_flash_attention_backward(t[0], t[1], t[2], t[3], t[4], t[5], Tensor(), Tensor(), c.context->S, c.context->S, 0.0,
                                    /*is_causal=*/true, Tensor(), Tensor(), score_scale(c), window_left(c),
                                    window_left(c) ? std::optional<int64_t>(0) : std::nullopt);
  t[6].copy_(dq);
  t[7].copy_(dk);
  t[8].copy_(dv);
}

// What cuDNN's kernels take through libtorch, and take faster than FlashAttention 2 (measured on an H100: 1.6 to 1.9 times the
// forward, 1.4 to 1.8 times the backward, lengths 2,048 to 8,192).
bool has_cudnn_attention(const Call& c) {
  constexpr int kHopper = 9;
  constexpr int64_t kLengths = 64, kLargestHead = 128;
  return streams.major >= kHopper && !window_keys(c) && c.context->S % kLengths == 0 && c.context->d <= kLargestHead;
}
Tensor heads_first(const Tensor& t) { return t.transpose(1, 2); }
void cudnn(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  const int64_t S = c.context->S;
  const auto result = at::_cudnn_attention_forward(heads_first(t[0]), heads_first(t[1]), heads_first(t[2]), {}, {}, {}, S, S,
                                                   /*compute_log_sumexp=*/true, 0.0, /*is_causal=*/true, false, score_scale(c));
  heads_first(t[3]).copy_(std::get<0>(result));
  t[4].copy_(std::get<1>(result).view_as(t[4]));
}
void cudnn_backward(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  const int64_t S = c.context->S;
  const Tensor no_seed =
      at::for_blob(t[5].data_ptr(), {}).options(t[5].options().dtype(at::kLong)).target_device(device()).make_tensor();
  const auto [dq, dk, dv] = at::_cudnn_attention_backward(heads_first(t[0]), heads_first(t[1]), heads_first(t[2]), heads_first(t[3]),
                                                          heads_first(t[4]), t[5].unsqueeze(-1), no_seed, no_seed, Tensor(), Tensor(),
                                                          Tensor(), S, S, 0.0, /*is_causal=*/true, score_scale(c));
  heads_first(t[6]).copy_(dq);
  heads_first(t[7]).copy_(dk);
  heads_first(t[8]).copy_(dv);
}

// Keys or values once per query head.
Tensor repeated(const Tensor& k, const OpContext& x) {
  if (x.kv == x.a) return k;
  return k.unsqueeze(3).expand({x.B, x.S, x.kv, x.a / x.kv, x.d}).reshape({x.B, x.S, x.a, x.d});
}
Tensor summed(const Tensor& dk, const OpContext& x) { return x.kv == x.a ? dk : dk.view({x.B, x.S, x.kv, x.a / x.kv, x.d}).sum(3); }
void efficient(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  const OpContext& x = *c.context;
  const auto result = at::_efficient_attention_forward(t[0], repeated(t[1], x), repeated(t[2], x), {}, {}, {}, x.S, x.S, 0.0,
                                                       kCausalFromTopLeft, true, score_scale(c), {}, window_keys(c));
  t[3].copy_(std::get<0>(result));
  t[4].copy_(std::get<1>(result).narrow(2, 0, x.S));
}
void efficient_backward(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  const OpContext& x = *c.context;
  const int64_t padded = (x.S + kLogSumExpAlignment - 1) / kLogSumExpAlignment * kLogSumExpAlignment;
  Tensor lse = t[5];
  if (padded != x.S) {
    lse = at::full({x.B, x.a, padded}, INFINITY, t[5].options());
    lse.narrow(2, 0, x.S).copy_(t[5]);
  }
  // One split of the keys: no atomics.
  const auto result = at::_efficient_attention_backward(t[0], t[1], repeated(t[2], x), repeated(t[3], x), {}, t[4], {}, {}, x.S, x.S,
                                                        lse, 0.0, Tensor(), Tensor(), kCausalFromTopLeft, false, score_scale(c),
                                                        /*num_splits_key=*/1, window_keys(c));
  t[6].copy_(std::get<0>(result));
  t[7].copy_(summed(std::get<1>(result), x));
  t[8].copy_(summed(std::get<2>(result), x));
}

struct CudaAtenOp {
  MakeViews views;
  OpFunction f32, bf16;
};
const std::map<std::string, CudaAtenOp>& libtorch_kernels() {
  static const std::map<std::string, CudaAtenOp> table = {
      {"linear", {of_cuda<views::linear>, gemm, gemm}},
      {"linear_add", {of_cuda<views::linear_add>, gemm_add, gemm_add}},
      {"linear_dx", {of_cuda<views::linear_dx>, gemm, gemm}},
      {"linear_dx_add", {of_cuda<views::linear_dx_add>, gemm_add, gemm_add}},
      {"linear_dw", {of_cuda<views::linear_dw>, gemm, gemm}},
      {"attention", {attention<false>, efficient, flash}},
      {"attention_split", {attention<true>, efficient, flash}},
      {"attention_backward", {attention_backward<false>, efficient_backward, flash_backward}},
      {"attention_split_backward", {attention_backward<true>, efficient_backward, flash_backward}}};
  return table;
}

std::string refusal(const std::string& kernel, const Call& call) {
  const OpContext& x = *call.context;
  if (kernel.starts_with("attention")) {
    if (x.d % 8 != 0) return fmt::format("attention on CUDA takes head sizes that are multiples of 8, this model's is {}", x.d);
    if (call.attributes->soft_cap > 0) return "attention on CUDA has no soft cap";
    if (x.d > 256) return fmt::format("attention on CUDA takes head sizes up to 256, this model's is {}", x.d);
  }
  if (kernel.starts_with("qk_norm") && x.d > kMaxHeadSize)
    return fmt::format("qk-norm on CUDA takes head sizes up to {}, this model's is {}", kMaxHeadSize, x.d);
  return "";
}

void copy_on(StreamHandle stream, void* to, const void* from, int64_t bytes) {
  if (to == from || bytes == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDeviceToDevice, stream), "copy");
}

class CudaKernels : public Kernels {
 public:
  std::string bind(const std::string& kernel, Call& call) const override {
    if (const std::string why = refusal(kernel, call); !why.empty()) return why;
    if (const auto own = own_kernels().find(kernel); own != own_kernels().end()) {
      call.function = own->second;
      return "";
    }
    const auto found = libtorch_kernels().find(kernel);
    if (found == libtorch_kernels().end()) return "the CUDA plugin has no such kernel";
    call.prepared = std::make_shared<AtenViews>(AtenViews{found->second.views(call)});
    call.function = kernel == "linear_dw" && call.accumulate ? gemm_add : bf16(call) ? found->second.bf16 : found->second.f32;
    if (call.function == flash && has_cudnn_attention(call)) call.function = cudnn;
    if (call.function == flash_backward && has_cudnn_attention(call) && !call.context->deterministic) call.function = cudnn_backward;
    if (call.attributes->multiplier != 1 && call.function == gemm) call.function = gemm_scaled;
    return "";
  }
  void cast(Stream stream, const float* from, void* to, Dtype to_dtype, int64_t n) const override {
    const StreamHandle on = streams.of[size_t(stream)];
    if (to_dtype == Dtype::kBf16)
      cast_to_bf16(from, to, n, on);
    else
      copy_on(on, to, from, n * 4);
  }
  void sum_chunks(float* target, const void* own, const void* received, Dtype dtype, int64_t size, int64_t index, int64_t chunk_stride,
                  int64_t n, bool accumulate) const override {
    cuda::sum_chunks(dtype == Dtype::kBf16, target, own, received, size, index, chunk_stride, n, accumulate, compute());
  }
  void sum_partials(const void* own, const void* received, const void* addend, void* target, Dtype dtype, int64_t size, int64_t index,
                    int64_t n) const override {
    cuda::sum_partials(dtype == Dtype::kBf16, own, received, addend, target, size, index, n, compute());
  }
  void copy(void* to, const void* from, int64_t bytes) const override { copy_on(compute(), to, from, bytes); }
  void sum_of_squares(const float* x, const std::vector<ElementRange>& ranges, double* sum) const override {
    check_cuda(cudaMemsetAsync(sum, 0, sizeof(double), compute()), "memset");
    for (const ElementRange& r : ranges) cuda::sum_of_squares(x + r.begin, r.end - r.begin, sum, /*accumulate=*/true, compute());
  }
};

}  // namespace

StreamHandle compute() { return streams.of[size_t(Stream::kCompute)]; }

std::unique_ptr<Kernels> make_kernels(int device_index, StreamHandle compute, StreamHandle gather, StreamHandle reduce) {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_index), "attribute");
  streams = {device_index, major, {compute, gather, reduce}};
  return std::make_unique<CudaKernels>();
}

}  // namespace distsetup::cuda
