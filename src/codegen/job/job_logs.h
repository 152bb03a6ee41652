// Where a SLURM job logs to. sbatch opens --output before the script runs and fails without a trace when its folder is missing, so a
// folder never goes into the directive. The batch shell then logs to a plain name in the folder of submission, and the step's log goes
// to the named folder, which the script makes first.
#pragma once
#include <string>

#include "base/diagnostic.h"
#include "codegen/job/options.h"

namespace distsetup {

struct JobLogs {
  std::string output, error;                         // of the batch shell: names without a folder
  std::string step_folder, step_output, step_error;  // empty: the step logs where the batch shell does
};
Result<JobLogs> job_logs(const JobValues& settings);

}  // namespace distsetup
