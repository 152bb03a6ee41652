// Which rank this process is, from what started it: torchrun's contract (also `distsetup launch`'s), SLURM's srun, Open MPI's mpirun;
// nothing of these: one rank. Read once at start and checked against the plan.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "base/diagnostic.h"
#include "plan/plan.h"
#include "runtime/comm/communicator.h"

namespace distsetup {

struct RankEnvironment {
  std::string source = "no launcher";  // "torchrun", "SLURM", "Open MPI"
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;
  std::string host;
  Rendezvous rendezvous;  // timeouts are the plan's, set later
};

std::string host_name();  // of this machine; "unknown host" where it has none

using Getenv = std::function<std::optional<std::string>(const std::string&)>;
std::optional<std::string> process_getenv(const std::string& name);

// Errors (kEnvironment): a variable missing beside its kin, not a number, or out of range.
Result<RankEnvironment> read_environment(const Getenv& get = process_getenv);
// The number of ranks, and of ranks per node, against the plan's mesh.
Diagnostics check_environment(const RankEnvironment& environment, const Plan& plan);

}  // namespace distsetup
