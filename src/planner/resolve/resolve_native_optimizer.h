// The optimizer of the bundled trainer: what is assumed of its numbers, and settings that it does not read.
#pragma once
#include "planner/resolve/method_defaults.h"
#include "planner/resolve/resolving.h"

namespace distsetup {

// Of plan().train.optimizer. Settles the decay rates, epsilon, momentum and the weight decay.
void resolve_native_optimizer(Resolving& r, MethodDefaults usual);
// Momentum is the bundled trainer's to be told.
void refuse_momentum(Resolving& r);

}  // namespace distsetup
