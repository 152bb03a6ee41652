// What may be chosen of the mesh: sharding, axes, recomputation; pinned, left to the search, or refused.
#pragma once
#include "planner/resolve/resolving.h"

namespace distsetup {

void resolve_parallel(Resolving& r);
// Whether it makes the loss of all logits at once.
void resolve_native_loss(Resolving& r);
// Further axes: pinned, searched where the trainer has them, else 1 and refused above it. Part of resolve_parallel() for the bundled
// trainer; for others after all that does not depend on the trainer.
void resolve_axes(Resolving& r);
void check_transformers_plan(Resolving& r);  // of tensor parallelism; after program, loss and adapters are known
// For other trainers: of what may be chosen only what the trainer has.
void narrow_to_trainer(Resolving& r);

}  // namespace distsetup
