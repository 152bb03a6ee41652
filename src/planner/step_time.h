// Seconds of one step: a roofline per operation, a cost per collective, and streams that wait for each other as the schedule says.
#pragma once
#include "plan/schedule.h"
#include "planner/simulate.h"

namespace distsetup {

// Of one unit kind: every op takes the longer of its arithmetic and its memory traffic.
ProgramTime program_time(const Plan& plan, const Schedule& schedule, int variant);

// One collective over `group` that moves `bytes` (the full message of a gather or reduction).
double collective_s(const Plan& plan, InstructionOp op, Group group, int64_t bytes);

// times: per variant of the schedule.
TimePlan step_time(const Plan& plan, const Schedule& schedule, const std::vector<ProgramTime>& times);

}  // namespace distsetup
