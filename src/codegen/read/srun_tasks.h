// How many tasks an srun starts and how many GPUs of a node they take: by its own options first, and by the job's then.
#pragma once
#include <cstdint>

#include "codegen/shell/launch_line.h"

namespace distsetup::foreign {

struct SrunTasks {
  int64_t per_node = 0, nodes = 0;  // 0: only the running job knows
  int64_t total() const { return per_node * nodes; }
};

// `nodes`: of the job, where its script does not say; 0: nobody knows.
SrunTasks tasks_of(const ShellScript& script, const LaunchStage& srun, int64_t nodes);

// Of the job, as one srun without options of its own would start them.
SrunTasks tasks_of_job(const ShellScript& script, int64_t nodes);

// GPUs of a node that the tasks of an srun take by --gpus-per-task, where the job has others; 0: what the job has.
int64_t gpus_of_step(const ShellScript& script, const LaunchStage& srun);

}  // namespace distsetup::foreign
