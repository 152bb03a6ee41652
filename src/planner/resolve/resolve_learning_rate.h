// The learning rate over a run: peak, warm-up, schedule and minimum.
#pragma once
#include "planner/resolve/method_defaults.h"
#include "planner/resolve/resolving.h"

namespace distsetup {

// After train.steps, or the run's length in samples or tokens, are read. `usual`: the peak where none is given.
void resolve_learning_rate(Resolving& r, const MethodDefaults& usual);

}  // namespace distsetup
