// Ops of attention's sinks, of experts' biases and of a clipped gate (src/plan/sinks_biases.h), the CPU's own.
#pragma once
#include <string>

#include "runtime/engine/ops.h"
#include "runtime/kernels/clipped_gate.h"

namespace distsetup {

// The first of all experts whose biases are those of the rows that `starts` divides, where ranks share experts.
inline int64_t first_own_expert(const OpContext& context, const Argument& starts) { return context.ep_index * (starts.dim(0) - 1); }

inline ClippedGate clipped_gate(const Call& c) { return {float(c.attributes->limit), float(c.attributes->alpha)}; }

bool bind_sink_or_bias_op(const std::string& kernel, Call& call);  // false: another kernel

}  // namespace distsetup
