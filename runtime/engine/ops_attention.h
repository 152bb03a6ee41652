// Attention that libtorch's CPU kernels do not have: with a window shorter than the sequence, a soft cap, or of
// queries with keys that are elsewhere in the sequence.
#pragma once
#include <string>

#include "runtime/engine/ops.h"

namespace distsetup {

bool needs_own_attention(const std::string& kernel, const Call& call);
// For a call that needs it. Returns why it cannot; empty: bound.
std::string bind_own_attention(const std::string& kernel, Call& call);

}  // namespace distsetup
