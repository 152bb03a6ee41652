// Megatron-LM's arguments, in a launch script or a list of their own. Internal to lint.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

// Whether a command's program takes Megatron-LM's arguments.
bool is_megatron(const LaunchStage& stage);

// Of a fork or an old release: it takes flags that the present Megatron-LM does not have.
bool is_megatron_fork(const LaunchStage& run);

// Megatron-LM's own pretraining script with arguments that it has: its asserts are known. Forks, and scripts of one's own with such
// names, may take what it refuses. "": it is; else what would have to be so.
std::string doubt_of_megatron(const LaunchStage& run);

void check_megatron(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
