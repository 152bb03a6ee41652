// How many tasks an srun starts, by its own options first and the job's then. Internal to the checks of SLURM.
#pragma once
#include "codegen/lint/job_script.h"

namespace distsetup::lint {

struct SrunTasks {
  int64_t per_node = 0, nodes = 0;  // 0: only the running job knows
  int64_t total() const { return per_node * nodes; }
};

SrunTasks tasks_of(const JobScript& in, const LaunchStage& srun);

// Of the job, as one srun without options of its own would start them.
SrunTasks tasks_of_job(const JobScript& in);

}  // namespace distsetup::lint
