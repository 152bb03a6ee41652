// Predictions for the bundled trainer: bounds and simulation of its schedule, and the expanded schedule packed to the byte.
#pragma once
#include <memory>

#include "planner/search/predictor.h"

namespace distsetup {

std::unique_ptr<Predictor> native_predictor(const Problem& problem);

}  // namespace distsetup
