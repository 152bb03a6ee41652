// Attention that libtorch's CPU kernels do not have: with a window shorter than the sequence, or a soft cap.
#pragma once
#include <string>

#include "runtime/engine/ops.h"

namespace distsetup {

// False: not such a call, or no attention.
bool bind_own_attention(const std::string& kernel, Call& call);

}  // namespace distsetup
