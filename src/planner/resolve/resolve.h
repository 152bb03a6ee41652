// Spec → Problem: names are looked up, defaults filled in and said, contradictions refused.
#pragma once
#include <string>
#include <vector>

#include "model/presets.h"
#include "planner/resolve/problem.h"
#include "planner/resolve/read_inputs.h"

namespace distsetup {

// A function of its arguments alone. All mistakes together. Where nobody names a trainer and the bundled one cannot run the model, the
// first that can stands in for it; too_large_for: labels of those that could, and with which the run does not fit.
Result<Problem> resolve(const Spec& spec, const Presets& presets, const Inputs& inputs,
                        const std::vector<std::string>& too_large_for = {});

}  // namespace distsetup
