// Spec → Problem: names are looked up, defaults filled in and said, contradictions refused.
#pragma once
#include <string>
#include <vector>

#include "model/presets.h"
#include "planner/resolve/problem.h"
#include "planner/resolve/read_inputs.h"

namespace distsetup {

// A trainer that could stand in for the bundled one, and with which the run does not surely fit.
struct PassedOver {
  std::string label;
  bool is_tight = false;  // else it does not fit
};

// A function of its arguments alone. All mistakes together. Where nobody names a trainer and the bundled one cannot run the model, the
// first that can stands in for it; passed_over: those that could and are not to be taken.
Result<Problem> resolve(const Spec& spec, const Presets& presets, const Inputs& inputs,
                        const std::vector<PassedOver>& passed_over = {});

}  // namespace distsetup
