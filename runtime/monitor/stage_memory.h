// Where a pipeline has stages, the plan's bytes are those of the fullest one, and of the fullest
// host: what is measured beside them comes from the same place, whichever rank writes the report.
#pragma once
#include "plan/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/engine.h"

namespace distsetup {

// The stage whose bytes plan.memory has; 0 where there is one.
int fullest_stage(const Plan& plan);
// Collective where there are stages. What compare() is to hold the plan against: the first rank's of that stage, with the most that
// any rank has on its host and its disk.
MemoryReport memory_as_planned(Communicator& communicator, const Plan& plan, const MemoryReport& own);

}  // namespace distsetup
