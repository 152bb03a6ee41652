// `distsetup-service --slurm FOLDER WORDS...`: the launch phase of a job on SLURM. Submits the job's plan by `distsetup launch
// --target slurm`, waits until it has left the queue, and ends as it ended. Started again, it waits for the job that is there.
#pragma once
#include <string>
#include <vector>

namespace distsetup {

int run_slurm_phase(const std::string& folder, const std::vector<std::string>& flags);

}  // namespace distsetup
