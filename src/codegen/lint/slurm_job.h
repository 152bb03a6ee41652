// A job script as a whole: what the scheduler reads, logs, requeues, signals, addresses.
#pragma once
#include <vector>

#include "codegen/lint/job_script.h"

namespace distsetup::lint {

// `sruns`: its lines with an srun.
void check_job(const JobScript& in, const std::vector<const LaunchLine*>& sruns);

}  // namespace distsetup::lint
