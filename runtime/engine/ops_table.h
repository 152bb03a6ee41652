// What the sources of the CPU's own ops share: operands by type, and tables of kernels for all compute types.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "runtime/engine/ops.h"
#include "runtime/kernels/heads.h"

namespace distsetup {

template <class E>
E* in(const Call& c, int i) {
  return static_cast<E*>(c.reads[size_t(i)].data);
}
template <class E>
E* out(const Call& c, int i) {
  return static_cast<E*>(c.writes[size_t(i)].data);
}
inline Heads heads(const OpContext& x) { return {x.a, x.kv, x.d}; }

struct NativeOp {
  std::string_view kernel;
  OpFunction f32, bf16, f16 = nullptr;
};
// nullptr: not in the table.
inline OpFunction find_op(std::span<const NativeOp> table, std::string_view kernel, const Call& call) {
  const Dtype compute = call.context->compute;
  for (const NativeOp& entry : table)
    if (entry.kernel == kernel) return compute == Dtype::kBf16 ? entry.bf16 : compute == Dtype::kF16 ? entry.f16 : entry.f32;
  return nullptr;
}

}  // namespace distsetup
