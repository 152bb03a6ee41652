// Variables that a scheduler sets, under a name that it does not have: $PBS_JOB_ID, $SLURM_PROC_ID.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_scheduler_variables(const LintSetup& setup, const Document& document, Findings& report);

}  // namespace distsetup::lint
