// When a run saves and evaluates, what of it stays, and when it ends early: checkpoint.*, train.evaluate_every, train.patience.
#pragma once
#include "planner/resolve/resolving.h"

namespace distsetup {

// The data are taken already: rules that go by held-out loss are refused where nothing is held out.
void resolve_checkpoints(Resolving& r);

}  // namespace distsetup
