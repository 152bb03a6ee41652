// Megatron-LM's arguments, in a launch script or a list of their own. Internal to lint.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

// Whether a command's program takes Megatron-LM's arguments.
bool is_megatron(const LaunchStage& stage);

void check_megatron(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
