// The kernel names of programs bound to CUDA: our own kernels, libtorch's GEMMs with outputs in the arena, attention (attention.cc),
// and copies of rows. What a kernel cannot do is refused when a list is bound, by name.
#include "runtime/kernels/cuda/ops.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_cuda_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm_cuda_dispatch.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <stdexcept>

#include "base/check.h"
#include "plan/update_layout.h"
#include "runtime/engine/aten_views.h"
#include "runtime/engine/row_copies.h"
#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/attention_documents.h"
#include "runtime/kernels/cuda/attention_ring.h"
#include "runtime/kernels/cuda/experts.h"
#include "runtime/kernels/cuda/own_ops.h"
#include "runtime/kernels/cuda/sinks_biases.h"

namespace distsetup::cuda {
namespace {

using at::Tensor;

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
const std::map<std::string, LibtorchKernel>& libtorch_kernels() {
  static const std::map<std::string, LibtorchKernel> table = {
      {"linear", {of_cuda<views::linear>, gemm, gemm}},         {"linear_add", {of_cuda<views::linear_add>, gemm_add, gemm_add}},
      {"linear_dx", {of_cuda<views::linear_dx>, gemm, gemm}},   {"linear_dx_add", {of_cuda<views::linear_dx_add>, gemm_add, gemm_add}},
      {"linear_dw", {of_cuda<views::linear_dw>, gemm, gemm}},   {"columns_add", {of_cuda<views::columns_add>, gemm_add, gemm_add}},
      {"columns_dw", {of_cuda<views::columns_dw>, gemm, gemm}}, {"columns_dx", {of_cuda<views::columns_dx>, gemm, gemm}}};
  return table;
}

std::string refusal(const std::string& kernel, const Call& call) {
  const OpContext& x = *call.context;
  if (kernel.starts_with("attention") || kernel.starts_with("ring_attention")) return attention_refusal(kernel, call);
  if (kernel.starts_with("qk_norm") && x.d > kMaxHeadSize)
    return fmt::format("qk-norm on CUDA takes head sizes up to {}, this model's is {}", kMaxHeadSize, x.d);
  return experts_refusal(kernel, call);
}

void copy_on(StreamHandle stream, void* to, const void* from, int64_t bytes) {
  if (to == from || bytes == 0) return;
  check_cuda(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDeviceToDevice, stream), "copy");
}

constexpr int64_t kMostPitch = INT32_MAX;  // bytes between rows of one call (cudaDeviceProp::memPitch)
void copy_rows(const Call& c) {
  for (const RowCopy& r : *static_cast<const std::vector<RowCopy>*>(c.prepared.get())) {
    if (r.num_rows > 1 && std::max(r.to_pitch, r.from_pitch) <= kMostPitch) {
      check_cuda(cudaMemcpy2DAsync(r.to, size_t(r.to_pitch), r.from, size_t(r.from_pitch), size_t(r.row_bytes), size_t(r.num_rows),
                                   cudaMemcpyDeviceToDevice, compute()),
                 "copy of rows");
      continue;
    }
    for (int64_t i = 0; i < r.num_rows; ++i) copy_on(compute(), r.to + i * r.to_pitch, r.from + i * r.from_pitch, r.row_bytes);
  }
}

class CudaKernels : public Kernels {
 public:
  std::string bind(const std::string& kernel, Call& call) const override {
    if (const std::string why = refusal(kernel, call); !why.empty()) return why;
    if (std::vector<RowCopy> copies = row_copies(kernel, call); !copies.empty()) {
      call.prepared = std::make_shared<std::vector<RowCopy>>(std::move(copies));
      call.function = copy_rows;
      return "";
    }
    for (const std::map<std::string, OpFunction>* table : {&own_kernels(), &expert_kernels(), &sink_and_bias_kernels()}) {
      const auto own = table->find(kernel);
      if (own == table->end()) continue;
      call.function = own->second;
      return "";
    }
    if (bind_grouped_op(kernel, call)) return "";
    const bool is_of_documents = kernel.find("_packed") != std::string::npos;
    const std::map<std::string, LibtorchKernel>& table = is_of_documents                        ? document_kernels()
                                                         : kernel.starts_with("attention")      ? attention_kernels()
                                                         : kernel.starts_with("ring_attention") ? ring_kernels()
                                                                                                : libtorch_kernels();
    const auto found = table.find(kernel);
    if (found == table.end()) return "the CUDA plugin has no such kernel";
    call.prepared = std::make_shared<AtenViews>(AtenViews{found->second.views(call)});
    call.function = kernel.ends_with("_dw") && call.accumulate ? gemm_add : is_16_bit(call) ? found->second.half : found->second.f32;
    if (kernel.starts_with("attention")) take_faster(call);
    if (call.attributes->multiplier != 1 && call.function == gemm) call.function = gemm_scaled;
    return "";
  }
  void cast(Stream stream, const float* from, void* to, Dtype to_dtype, int64_t n) const override {
    const StreamHandle on = streams.of[size_t(stream)];
    if (to_dtype == Dtype::kF32)
      copy_on(on, to, from, n * 4);
    else
      cuda::cast(element_of(to_dtype), from, to, n, on);
  }
  void sum_chunks(float* target, const void* own, const void* received, Dtype dtype, int64_t size, int64_t index, int64_t chunk_stride,
                  int64_t n, bool accumulate) const override {
    cuda::sum_chunks(element_of(dtype), target, own, received, size, index, chunk_stride, n, accumulate, compute());
  }
  void sum_partials(const void* own, const void* received, const void* addend, void* target, Dtype dtype, int64_t size, int64_t index,
                    int64_t n) const override {
    cuda::sum_partials(element_of(dtype), own, received, addend, target, size, index, n, compute());
  }
  void copy(Stream stream, void* to, const void* from, int64_t bytes) const override {
    copy_on(streams.of[size_t(stream)], to, from, bytes);
  }
  void sum_of_squares(const float* x, const std::vector<ElementRange>& ranges, double* sum) const override {
    check_cuda(cudaMemsetAsync(sum, 0, sizeof(double), compute()), "memset");
    for (const ElementRange& r : ranges) cuda::sum_of_squares(x + r.begin, r.end - r.begin, sum, /*accumulate=*/true, compute());
  }
  void adamw(const AdamWUpdate& update) const override { cuda::adamw(update, compute()); }
  void lion(const LionUpdate& update) const override { cuda::lion(update, compute()); }
  void adamw_8bit(const AdamW8bitUpdate& update) const override { cuda::adamw_8bit(update, compute()); }
  void adafactor(AdafactorPass pass, const AdafactorUpdate& update) const override { cuda::adafactor(pass, update, compute()); }
  void muon_momentum(const MuonMomentum& update) const override { cuda::muon_momentum(update, compute()); }
  void decayed_step(const DecayedStep& update) const override { cuda::decayed_step(update, compute()); }
  void normalize(void* values, int64_t n, float* scratch) const override {
    cuda::normalize(values, n, scratch, int(kNormParts), compute());
  }
  void multiply_add(const MatrixView& out, const MatrixView& addend, const MatrixView& a, const MatrixView& b, double beta,
                    double alpha) const override {
    const auto view = [](const MatrixView& m) {
      const Tensor t = tensor({m.data, {m.rows, m.columns}, Dtype::kBf16});
      return m.is_transposed ? t.t() : t;
    };
    Tensor to = view(out);
    at::cuda::addmm_out(to, addend.data == out.data ? to : view(addend), view(a), view(b), beta, alpha);
  }
};

}  // namespace

c10::Device device() { return c10::Device(c10::kCUDA, c10::DeviceIndex(streams.device_index)); }
int capability_major() { return streams.major; }

Tensor tensor(const Argument& a) {
  const at::ScalarType type = a.dtype == Dtype::kBf16 ? at::kBFloat16 : a.dtype == Dtype::kF16 ? at::kHalf : at::kFloat;
  return at::for_blob(a.data, a.shape).options(at::TensorOptions().dtype(type).device(device())).target_device(device()).make_tensor();
}

StreamHandle compute() { return streams.of[size_t(Stream::kCompute)]; }

std::unique_ptr<Kernels> make_kernels(int device_index, StreamHandle compute, StreamHandle gather, StreamHandle reduce) {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_index), "attribute");
  streams = {device_index, major, {compute, gather, reduce}};
  return std::make_unique<CudaKernels>();
}

}  // namespace distsetup::cuda
