#include "runtime/engine/cpu_kernels.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/engine/ops_aten.h"
#include "runtime/engine/ops_attention.h"
#include "runtime/engine/ops_experts.h"
#include "runtime/engine/ops_grouped.h"
#include "runtime/engine/ops_latent.h"
#include "runtime/engine/ops_native.h"
#include "runtime/engine/ops_preference.h"
#include "runtime/engine/ops_quantized.h"
#include "runtime/engine/ops_sinks_biases.h"
#include "runtime/engine/row_copies.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/kernels.h"
#include "runtime/optim/adafactor.h"
#include "runtime/optim/muon.h"
#include "runtime/optim/own_optimizers.h"

namespace distsetup {
namespace {

void copy_rows(const Call& c) {
  for (const RowCopy& r : *static_cast<const std::vector<RowCopy>*>(c.prepared.get())) {
    parallel_ranges(r.num_rows, 2 * r.row_bytes, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) std::memcpy(r.to + i * r.to_pitch, r.from + i * r.from_pitch, size_t(r.row_bytes));
    });
  }
}
bool bind_row_copies(const std::string& kernel, Call& call) {
  std::vector<RowCopy> copies = row_copies(kernel, call);
  if (copies.empty()) return false;
  call.prepared = std::make_shared<std::vector<RowCopy>>(std::move(copies));
  call.function = copy_rows;
  return true;
}

class CpuKernels : public Kernels {
 public:
  std::string bind(const std::string& kernel, Call& call) const override {
    if (bind_row_copies(kernel, call)) return "";
    if (needs_own_attention(kernel, call)) return bind_own_attention(kernel, call);
    return bind_native_op(kernel, call) || bind_preference_op(kernel, call) || bind_quantized_op(kernel, call) ||
                   bind_expert_op(kernel, call) || bind_sink_or_bias_op(kernel, call) || bind_latent_op(kernel, call) ||
                   bind_grouped_op(kernel, call) || bind_aten_op(kernel, call)
               ? ""
               : "the CPU has no such kernel";
  }
  void cast(Stream, const float* from, void* to, Dtype to_dtype, int64_t n) const override {
    parallel_ranges(n, 8, [&](int64_t begin, int64_t end) {
      if (to_dtype == Dtype::kBf16)
        cpu::cast(from + begin, static_cast<Bf16*>(to) + begin, end - begin);
      else if (to_dtype == Dtype::kF16)
        cpu::cast(from + begin, static_cast<F16*>(to) + begin, end - begin);
      else
        cpu::cast(from + begin, static_cast<float*>(to) + begin, end - begin);
    });
  }
  void sum_chunks(float* target, const void* own, const void* received, Dtype dtype, int64_t size, int64_t index, int64_t chunk_stride,
                  int64_t n, bool accumulate) const override {
    const auto sum = [&]<class E>(const E* mine) {
      const E* const others = static_cast<const E*>(received);
      parallel_ranges(n, size * int64_t(sizeof(E)) + 8, [&](int64_t begin, int64_t end) {
        cpu::sum_chunks<E>(target + begin, mine + begin, others ? others + begin : nullptr, size, index, chunk_stride, end - begin,
                           accumulate ? cpu::Store::kAdd : cpu::Store::kSet);
      });
    };
    if (dtype == Dtype::kBf16)
      sum(static_cast<const Bf16*>(own));
    else if (dtype == Dtype::kF16)
      sum(static_cast<const F16*>(own));
    else
      sum(static_cast<const float*>(own));
  }
  void sum_partials(const void* own, const void* received, const void* addend, void* target, Dtype dtype, int64_t size, int64_t index,
                    int64_t n) const override {
    const auto sum = [&]<class E>(E* to) {
      const E *const mine = static_cast<const E*>(own), *const others = static_cast<const E*>(received),
                     *const more = static_cast<const E*>(addend);
      parallel_ranges(n, (size + 2) * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
        cpu::sum_partials<E>(mine + begin, others ? others + begin : nullptr, more ? more + begin : nullptr, to + begin, size, index,
                             n, end - begin);
      });
    };
    if (dtype == Dtype::kBf16)
      sum(static_cast<Bf16*>(target));
    else if (dtype == Dtype::kF16)
      sum(static_cast<F16*>(target));
    else
      sum(static_cast<float*>(target));
  }
  void copy(Stream, void* to, const void* from, int64_t bytes) const override {
    if (to == from || bytes == 0) return;
    parallel_ranges(bytes, 2, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, size_t(end - begin));
    });
  }
  void sum_of_squares(const float* x, const std::vector<ElementRange>& ranges, double* sum) const override {
    // Blocks of a fixed length, added in order: the sum does not depend on the number of threads.
    constexpr int64_t kBlock = 1 << 20;
    *sum = 0;
    for (const ElementRange& r : ranges) {
      std::vector<double> blocks(size_t((r.end - r.begin + kBlock - 1) / kBlock));
      parallel_ranges(int64_t(blocks.size()), 4 * kBlock, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          const int64_t first = r.begin + b * kBlock;
          blocks[size_t(b)] = cpu::sum_of_squares(x + first, std::min(kBlock, r.end - first));
        }
      });
      for (const double block : blocks) *sum += block;
    }
  }
  void adamw(const AdamWUpdate& update) const override { update_adamw_on_host(update); }
  void lion(const LionUpdate& update) const override { update_lion_on_host(update); }
  void adamw_8bit(const AdamW8bitUpdate& update) const override { update_adamw_8bit_on_host(update); }
  void adafactor(AdafactorPass pass, const AdafactorUpdate& update) const override { adafactor_on_host(pass, update); }
  void muon_momentum(const MuonMomentum& update) const override { muon_momentum_on_host(update); }
  void decayed_step(const DecayedStep& update) const override { decayed_step_on_host(update); }
  void normalize(void* values, int64_t n, float*) const override { normalize_on_host(values, n); }
  void multiply_add(const MatrixView& out, const MatrixView& addend, const MatrixView& a, const MatrixView& b, double beta,
                    double alpha) const override {
    aten_multiply_add(out, addend, a, b, beta, alpha);
  }
};

}  // namespace

const Kernels& cpu_kernels() {
  static const CpuKernels kernels;
  return kernels;
}

}  // namespace distsetup
