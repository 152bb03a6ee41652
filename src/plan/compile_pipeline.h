// One stage of a pipeline, in the order of pipeline.h. Tensors that live from one micro-batch's forward to its backward, and those
// that travel between stages, lie in buffers that live as long as the step: as many of each as are in use at once, taken in turn.
// Everything else lives inside one action (a chunk's forward or backward of one micro-batch).
#pragma once
#include "plan/schedule.h"

namespace distsetup {

// Can the bundled trainer split this model into stages at all?
bool can_have_stages(const Geometry& geometry);
// Why the bundled trainer cannot run this pipeline, each with its numbers. Empty: it can, or the plan has none.
Diagnostics check_pipeline(const Plan& plan);

// plan.mesh.pp > 1.
Schedule compile_pipeline(const Plan& plan, Phase phase, int stage);

// A plan whose lists take the same memory and show every kind of instruction of this one's, with at most a few micro-batches per
// stage: micro-batches in the middle of a pipeline's step are all alike.
Plan with_few_micro_batches(const Plan& plan);

}  // namespace distsetup
