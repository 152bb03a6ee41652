// The programs of the bundled trainer, Llama family: RMSNorm, RoPE, grouped-query attention, SwiGLU; tied or not, QKV bias, qk-norm.
// Weight gradients come before input gradients (0-4 % less arena). Legend: T tokens, h hidden, f feed-forward, a heads, kv kv heads,
// d head size, V vocabulary.
#pragma once
#include "model/geometry.h"
#include "plan/plan.h"
#include "plan/program.h"

namespace distsetup {

struct NativePrograms {
  Program embedding, block, head;
};
NativePrograms native_programs(const Geometry& geometry);

// What the native programs cannot express (experts, latent attention, layer norm, learned positions, ...), each named.
Diagnostics check_native(const Geometry& geometry);

Symbols native_symbols(const Geometry& geometry, int64_t micro_batch, int64_t sequence_length);

// Names of block tensors a policy drops: none {}, selective {h1 r1 h2 r2 m (+ qk-norm)}, full: everything saved but x.
std::vector<std::string> dropped_tensors(const Geometry& geometry, Recompute policy);

}  // namespace distsetup
