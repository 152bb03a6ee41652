// The CPU's ops of experts (src/plan/expert_rules.h): routers, rows of experts, activations. Products: ops_grouped.h.
#pragma once
#include <string>

#include "runtime/engine/ops.h"

namespace distsetup {

bool bind_expert_op(const std::string& kernel, Call& call);  // false: another kernel

}  // namespace distsetup
