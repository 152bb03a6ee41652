// A plan for a command line that names none: the flags of the run go to `distsetup plan`, which lies beside this program, and what it
// answers is executed. Each rank asks for itself: the same flags, files and environment give the same bytes on all of them (and the
// ranks compare when they meet). The trainer itself plans nothing.
#pragma once
#include <string>
#include <vector>

#include "runtime/monitor/environment.h"

namespace distsetup {

// plan.json's text, relative to the working directory. Said to `distsetup plan` where the flags do not say otherwise: the number of
// nodes and of ranks per node from the launcher, CPU ranks where there is no NVIDIA driver, and that the bundled trainer runs it.
// Rank 0 passes on what the planner says on standard error.
// Throws Failure: no distsetup program (kExitBadEnvironment), a GPU whose kind no flag names, ranks that do not fill their nodes, no
// plan (the planner's own exit code 2 or 3; 3 also when nothing fits).
std::string ask_for_plan(const std::vector<std::string>& flags, const RankEnvironment& environment);

}  // namespace distsetup
