// The CPU's ops of losses over preference pairs (src/plan/preference_loss.h).
#pragma once
#include <string>

#include "runtime/engine/ops.h"

namespace distsetup {

// False: it is none of them.
bool bind_preference_op(const std::string& kernel, Call& call);

}  // namespace distsetup
