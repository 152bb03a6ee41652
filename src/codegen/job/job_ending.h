// How a job ends: its time limit, the warning before it, and whether it goes on in the next job.
// The warning comes twice (one step and one checkpoint) before the limit, since the signal may come in the middle of either.
#pragma once
#include <cstdint>

#include "codegen/job/job_check.h"
#include "codegen/job/options.h"
#include "plan/plan.h"

namespace distsetup {

int64_t put_time_limit(JobCheck& check, const JobOptions& options);  // seconds
void put_ending(JobCheck& check, const JobValues& settings, const Plan* plan, int64_t limit_s);

}  // namespace distsetup
