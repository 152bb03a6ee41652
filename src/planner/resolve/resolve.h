// Spec → Problem: names are looked up, defaults filled in and said, contradictions refused.
#pragma once
#include "model/presets.h"
#include "planner/resolve/problem.h"
#include "planner/resolve/read_inputs.h"

namespace distsetup {

// A function of its arguments alone. All mistakes together.
Result<Problem> resolve(const Spec& spec, const Presets& presets, const Inputs& inputs);

}  // namespace distsetup
