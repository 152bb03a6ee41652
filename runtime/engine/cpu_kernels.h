// What the CPU computes with: the kernels of runtime/kernels/cpu, and libtorch's for the rest, on all threads of the rank.
#pragma once
#include "runtime/engine/ops.h"

namespace distsetup {

const Kernels& cpu_kernels();

}  // namespace distsetup
