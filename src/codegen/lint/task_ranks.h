// Scripts that a job has several tasks for, and which of the tasks they are. Internal to the checks of SLURM.
#pragma once
#include <vector>

#include "codegen/lint/job_script.h"

namespace distsetup::lint {

// A script that says itself how many GPUs of the node it takes.
bool chooses_devices(const LaunchStage& script);

// `sruns`: the lines of the script with an srun.
void check_task_ranks(const JobScript& in, const std::vector<const LaunchLine*>& sruns);

}  // namespace distsetup::lint
