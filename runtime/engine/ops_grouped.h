// The products of experts with their rows (src/plan/expert_rules.h) on the CPU.
#pragma once
#include <string>

#include "runtime/engine/ops.h"

namespace distsetup {

bool bind_grouped_op(const std::string& kernel, Call& call);  // false: another kernel

}  // namespace distsetup
