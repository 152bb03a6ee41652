// Which pipelines the bundled trainer has.
#pragma once
#include "plan/plan.h"

namespace distsetup {

// Can the bundled trainer split this model into stages at all?
bool can_have_stages(const Geometry& geometry);
// Why the bundled trainer cannot run this pipeline, each with its numbers. Empty: it can, or the plan has none.
Diagnostics check_pipeline(const Plan& plan);

// A plan whose lists take the same memory and show every kind of instruction of this one's, with at most a few micro-batches per
// stage: micro-batches in the middle of a pipeline's step are all alike.
Plan with_few_micro_batches(const Plan& plan);

}  // namespace distsetup
