// Programs' kernels that are those of runtime/kernels/cpu.
#pragma once
#include <string>

#include "runtime/engine/ops.h"

namespace distsetup {

// False when the kernel is none of them.
bool bind_native_op(const std::string& kernel, Call& call);

}  // namespace distsetup
