// One stage of a pipeline, in the order of pipeline.h. Tensors that live from one micro-batch's forward to its backward, and those
// that travel between stages, lie in buffers that live as long as the step: as many of each as are in use at once, taken in turn.
// Everything else lives inside one action (a chunk's forward or backward of one micro-batch).
#pragma once
#include "plan/layout_cache.h"
#include "plan/schedule.h"

namespace distsetup {

// plan.mesh.pp > 1.
Schedule compile_pipeline(const Plan& plan, Phase phase, int stage, LayoutDetail detail);

}  // namespace distsetup
