// What srun really starts, and when the shell expands what it is given.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_slurm(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
