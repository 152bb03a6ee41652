// Spec → Problem for the trainer that the spec names, or the bundled one.
#pragma once
#include <string_view>

#include "model/presets.h"
#include "planner/resolve/problem.h"
#include "planner/resolve/read_inputs.h"

namespace distsetup {

// `target`: as its variant of the trainer; "" = as the trainer itself. All mistakes together.
Result<Problem> resolve_trainer(const Spec& spec, const Presets& presets, const Inputs& inputs, std::string_view target);

}  // namespace distsetup
