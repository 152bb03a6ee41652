// The CPU's op on matrices that are held as nf4 (src/plan/nf4.h).
#pragma once
#include <string>

#include "runtime/engine/ops.h"

namespace distsetup {

bool bind_quantized_op(const std::string& kernel, Call& call);  // false: another kernel

}  // namespace distsetup
