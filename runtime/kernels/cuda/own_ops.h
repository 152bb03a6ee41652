// Our own kernels under the names that programs use.
#pragma once
#include <map>
#include <string>

#include "runtime/engine/ops.h"
#include "runtime/kernels/cuda/kernels.h"

namespace distsetup::cuda {

StreamHandle compute();  // of the one device; ops.cc
inline bool bf16(const Call& c) { return c.context->compute == Dtype::kBf16; }
const std::map<std::string, OpFunction>& own_kernels();

}  // namespace distsetup::cuda
