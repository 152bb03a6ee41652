// Launchers that a batch script starts itself, without srun: they run on the first node. Internal to the checks of SLURM.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "codegen/lint/job_script.h"

namespace distsetup::lint {

void check_batch_launch(const JobScript& in, const std::vector<const LaunchLine*>& sruns);

// Whether the script may get variables from elsewhere.
bool reads_settings(const JobScript& in);

// The name in "$NAME" or "${NAME}"; "" of any other text.
std::string variable_of(std::string_view text);

// A number, through variables that hold another one ("$NNODES", NNODES=$SLURM_NNODES): of SLURM's own the job's, 0 when it is not
// known.
int64_t node_count(const ShellScript& script, const std::string& value, int64_t nodes_of_job);

// What an option of sbatch or srun asks for: "4" and "h100:4", of gres "gpu:4" and "gpu:h100:4". Nothing where gres asks for something
// else, or where no number is written.
std::optional<long long> option_count(std::string_view option, const std::string& value);

}  // namespace distsetup::lint
