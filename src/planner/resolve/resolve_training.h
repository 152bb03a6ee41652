// How the model is trained: method, steps, batch, optimizer, adapters.
#pragma once
#include "planner/resolve/resolving.h"

namespace distsetup {

// Tokens of a sequence where nobody says.
int64_t assumed_sequence_length(const Geometry& model);

void resolve_training(Resolving& r);
void resolve_batch(Resolving& r);
// What a trainer other than the bundled one has to have.
void resolve_optimizer(Resolving& r);
void resolve_finetune(Resolving& r);
// CUDA graphs, where they are asked for: after all that they depend on.
void resolve_recording(Resolving& r);

}  // namespace distsetup
