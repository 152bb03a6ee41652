// The trainer's own kernels under the names that programs use. Operand order is the program's (src/plan/native_program.cc).
#include "runtime/engine/ops_native.h"

#include <array>

#include "base/check.h"
#include "runtime/engine/ops_aten.h"
#include "runtime/kernels/cpu/kernels.h"

namespace distsetup {
namespace {

using cpu::Store;

template <class E>
E* in(const Call& c, int i) {
  return static_cast<E*>(c.reads[size_t(i)].data);
}
template <class E>
E* out(const Call& c, int i) {
  return static_cast<E*>(c.writes[size_t(i)].data);
}
Store store(const Call& c) { return c.accumulate ? Store::kAdd : Store::kSet; }
Heads heads(const OpContext& x) { return {x.a, x.kv, x.d}; }

// ids, p:wte -> y
template <class E>
void embedding_forward(const Call& c) {
  cpu::embedding_forward<E>(in<int64_t>(c, 0), in<E>(c, 1), out<E>(c, 0), c.writes[0].dim(0), c.writes[0].dim(1));
}
// ids, dy -> g:wte
template <class E>
void embedding_backward(const Call& c) {
  cpu::embedding_backward<E>(in<int64_t>(c, 0), in<E>(c, 1), out<E>(c, 0), c.reads[1].dim(0), c.writes[0].dim(0), c.writes[0].dim(1),
                             store(c));
}
// x, p:n -> h, r
template <class E>
void rms_norm(const Call& c) {
  cpu::rms_norm<E>(in<E>(c, 0), in<E>(c, 1), out<E>(c, 0), out<float>(c, 1), c.reads[0].dim(0), c.reads[0].dim(1),
                   c.context->norm_epsilon);
}
// dh, x, r, p:n, dy -> dx, g:n, ws
template <class E>
void rms_norm_backward(const Call& c) {
  cpu::rms_norm_backward<E>(in<E>(c, 0), in<E>(c, 1), in<float>(c, 2), in<E>(c, 3), in<E>(c, 4), out<E>(c, 0), out<E>(c, 1),
                            out<float>(c, 2), c.reads[0].dim(0), c.reads[0].dim(1), store(c));
}
// dh, x, r, p:n -> dx, g:n, ws
template <class E>
void rms_norm_backward_first(const Call& c) {
  cpu::rms_norm_backward<E>(in<E>(c, 0), in<E>(c, 1), in<float>(c, 2), in<E>(c, 3), nullptr, out<E>(c, 0), out<E>(c, 1),
                            out<float>(c, 2), c.reads[0].dim(0), c.reads[0].dim(1), store(c));
}
// qkv, p:qn, p:kn -> qk, rqk
template <class E>
void qk_norm(const Call& c) {
  cpu::qk_norm<E>(in<E>(c, 0), in<E>(c, 1), in<E>(c, 2), out<E>(c, 0), out<float>(c, 1), c.context->T, heads(*c.context),
                  c.context->norm_epsilon);
}
// dqk, qkv, rqk, p:qn, p:kn, dqkv -> dqkv, g:qn, g:kn, ws_qk
template <class E>
void qk_norm_backward(const Call& c) {
  float* ws = out<float>(c, 3);
  cpu::qk_norm_backward<E>(in<E>(c, 0), in<E>(c, 1), in<float>(c, 2), in<E>(c, 3), in<E>(c, 4), out<E>(c, 0), out<E>(c, 1),
                           out<E>(c, 2), ws, ws + c.context->d, c.context->T, heads(*c.context), store(c));
}
// rows, cos, sin -> rows: qkv or qk, told apart by its width
template <class E>
void rope_in_place(const Call& c, float direction) {
  const OpContext& x = *c.context;
  cpu::rope<E>(out<E>(c, 0), in<float>(c, 1), in<float>(c, 2), x.T, x.S, x.a + x.kv, x.d, c.writes[0].dim(1), direction);
}
template <class E>
void rope(const Call& c) {
  rope_in_place<E>(c, 1.f);
}
template <class E>
void rope_backward(const Call& c) {
  rope_in_place<E>(c, -1.f);
}
// gu -> m
template <class E>
void swiglu(const Call& c) {
  cpu::swiglu<E>(in<E>(c, 0), out<E>(c, 0), c.writes[0].dim(0), c.writes[0].dim(1));
}
// dm, gu -> dgu
template <class E>
void swiglu_backward(const Call& c) {
  cpu::swiglu_backward<E>(in<E>(c, 0), in<E>(c, 1), out<E>(c, 0), c.reads[0].dim(0), c.reads[0].dim(1));
}
// z, targets, loss_scale, loss -> dz, loss
template <class E>
void cross_entropy(const Call& c) {
  cpu::cross_entropy<E>(in<E>(c, 0), in<int64_t>(c, 1), out<E>(c, 0), out<double>(c, 1), c.reads[0].dim(0), c.reads[0].dim(1),
                        *in<double>(c, 2));
}
// qkv, p:b -> qkv
template <class E>
void bias_add(const Call& c) {
  cpu::bias_add<E>(out<E>(c, 0), in<E>(c, 1), c.writes[0].dim(0), c.writes[0].dim(1));
}
// dqkv -> g:b, ws
template <class E>
void bias_backward(const Call& c) {
  cpu::bias_backward<E>(in<E>(c, 0), out<E>(c, 0), out<float>(c, 1), c.reads[0].dim(0), c.reads[0].dim(1), store(c));
}

struct NativeOp {
  const char* kernel;
  OpFunction f32, bf16;
};
#define DISTSETUP_ENTRY(kernel) \
  NativeOp { #kernel, kernel < float>, kernel < Bf16> }
constexpr std::array kTable = {DISTSETUP_ENTRY(embedding_forward),
                               DISTSETUP_ENTRY(embedding_backward),
                               DISTSETUP_ENTRY(rms_norm),
                               DISTSETUP_ENTRY(rms_norm_backward),
                               DISTSETUP_ENTRY(rms_norm_backward_first),
                               DISTSETUP_ENTRY(qk_norm),
                               DISTSETUP_ENTRY(qk_norm_backward),
                               DISTSETUP_ENTRY(rope),
                               DISTSETUP_ENTRY(rope_backward),
                               DISTSETUP_ENTRY(swiglu),
                               DISTSETUP_ENTRY(swiglu_backward),
                               DISTSETUP_ENTRY(cross_entropy),
                               DISTSETUP_ENTRY(bias_add),
                               DISTSETUP_ENTRY(bias_backward)};
#undef DISTSETUP_ENTRY

}  // namespace

bool bind_native_op(const std::string& kernel, Call& call) {
  for (const NativeOp& entry : kTable) {
    if (kernel == entry.kernel) call.function = call.context->compute == Dtype::kBf16 ? entry.bf16 : entry.f32;
  }
  return call.function != nullptr;
}

namespace {

class CpuKernels : public Kernels {
 public:
  std::string bind(const std::string& kernel, Call& call) const override {
    return bind_native_op(kernel, call) || bind_aten_op(kernel, call) ? "" : "the CPU has no such kernel";
  }
  void cast(Stream, const float* from, void* to, Dtype to_dtype, int64_t n) const override {
    if (to_dtype == Dtype::kBf16)
      cpu::cast(from, static_cast<Bf16*>(to), n);
    else
      cpu::cast(from, static_cast<float*>(to), n);
  }
  void sum_chunks(float* target, const void* own, const void* received, Dtype dtype, int64_t size, int64_t index, int64_t chunk_stride,
                  int64_t n, bool accumulate) const override {
    const auto sum = [&]<class E>(const E* mine) {
      cpu::sum_chunks<E>(target, mine, static_cast<const E*>(received), size, index, chunk_stride, n,
                         accumulate ? Store::kAdd : Store::kSet);
    };
    if (dtype == Dtype::kBf16)
      sum(static_cast<const Bf16*>(own));
    else
      sum(static_cast<const float*>(own));
  }
  void sum_of_squares(const float* x, const std::vector<ElementRange>& ranges, double* sum) const override {
    *sum = 0;
    for (const ElementRange& r : ranges) *sum += cpu::sum_of_squares(x + r.begin, r.end - r.begin);
  }
};

}  // namespace

const Kernels& cpu_kernels() {
  static const CpuKernels kernels;
  return kernels;
}

}  // namespace distsetup
