// Gradients on their way through a rank: contributions added up, and the sum of squares of what is trained.
#pragma once
#include "plan/layout.h"
#include "runtime/engine/ops.h"

namespace distsetup {

// Three buffers: own chunk and received chunks into the gradient shard. Two: a whole unit buffer into an fp32 one. Valid elements
// only.
void accumulate(const Call& call, const Layout& layout, int unit, const Coordinates& at, const Kernels& kernels);
void gradient_norm(const Call& call, const Layout& layout, const Coordinates& at, const Kernels& kernels);

}  // namespace distsetup
