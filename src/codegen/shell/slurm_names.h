// SLURM reads its long options by getopt_long, which takes a beginning of a name that no other name has.
#pragma once
#include <string>

namespace distsetup::foreign {

enum class SlurmCommand { kSbatch, kSrun };

// "tasks" -> "tasks-per-node"; any other name as it is.
std::string whole_slurm_name(const std::string& name, SlurmCommand command);

}  // namespace distsetup::foreign
