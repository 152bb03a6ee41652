// What the CPU computes with: the kernels of runtime/kernels/cpu, and libtorch's for the rest.
#pragma once
#include <string>

#include "runtime/engine/ops.h"

namespace distsetup {

const Kernels& cpu_kernels();

// False when the kernel is none of runtime/kernels/cpu.
bool bind_native_op(const std::string& kernel, Call& call);

}  // namespace distsetup
