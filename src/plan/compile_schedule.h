// The unit level: what each rank class gathers, computes, reduces and frees, in which order (schedule.h).
#pragma once
#include "plan/layout_cache.h"
#include "plan/schedule.h"

namespace distsetup {

// CHECKs that validate(plan) has no errors. `stage`: of a pipeline.
Schedule compile_schedule(const Plan& plan, Phase phase, int stage = 0, LayoutDetail detail = LayoutDetail::kParameters);

}  // namespace distsetup
