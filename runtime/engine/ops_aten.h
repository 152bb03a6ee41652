// GEMMs and attention of libtorch on the CPU.
#pragma once
#include <string>

#include "runtime/engine/ops.h"

namespace distsetup {

// False when the kernel is none of libtorch's.
bool bind_aten_op(const std::string& kernel, Call& call);
// Kernels::multiply_add
void aten_multiply_add(const MatrixView& out, const MatrixView& addend, const MatrixView& a, const MatrixView& b, double beta,
                       double alpha);

}  // namespace distsetup
