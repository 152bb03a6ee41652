// What launchers are told against each other and against the devices that the script leaves them: localhost on several nodes, more
// processes than GPUs, accelerate's processes of a node for those of all.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_launch_sizes(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
