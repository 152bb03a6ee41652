// `distsetup-service --slurm FOLDER WORDS...`: the launch phase of a job on SLURM. Submits the job's plan by `distsetup launch
// --target slurm`, waits until it has left the queue, and ends as it ended. Started again, it waits for the job that is there: SLURM's
// jobs outlive who waits for them.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace distsetup {

int run_slurm_phase(const std::string& folder, const std::vector<std::string>& flags);

struct SlurmJob {
  std::string number, folder;  // folder: it works in
};
// Ours that wait or run, by squeue; nothing: SLURM does not answer.
std::optional<std::vector<SlurmJob>> own_slurm_jobs();
bool cancel_slurm_job(const std::string& number);  // false: SLURM does not answer

}  // namespace distsetup
