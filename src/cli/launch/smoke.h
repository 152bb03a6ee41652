// `distsetup launch --smoke`: does the set-up run at all? A small stand-in of the plan is planned for this machine and trained for a
// few steps by the bundled trainer.
#pragma once
#include "base/diagnostic.h"
#include "cli/launch/launch.h"
#include "cli/settings/session.h"
#include "plan/plan.h"

namespace distsetup {

// `plan`: with data.root as seen from here. The stand-in goes to options.output_dir, or to a temporary folder that is removed unless a
// rank fails. Exit codes of run_launch.
int run_smoke(const Arguments& arguments, const Session& session, const Terminal& terminal, LaunchOptions options, const Plan& plan);

}  // namespace distsetup
