// What becomes of steps whose loss is not finite or a spike: train.on_nan, on_spike, spike_factor, max_skips.
#pragma once
#include "planner/resolve/resolving.h"

namespace distsetup {

void resolve_guard(Resolving& r);

}  // namespace distsetup
