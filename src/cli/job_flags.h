// The directives of a SLURM job as flags, shared by `slurm` and `emit --target slurm`.
#pragma once
#include <vector>

#include "cli/flags.h"
#include "codegen/codegen.h"

namespace distsetup {

std::vector<Flag> job_flags();
std::vector<std::string> job_flag_names();
// Nodes, GPUs and time limit are keys of the run and not set here.
Result<JobOptions> job_options(const Arguments& arguments);
// The command as the header of an emitted file shows it.
std::string emitted_command(const Arguments& arguments);

}  // namespace distsetup
