// What a batch script says to the scheduler and to conda, read by itself. Internal to the checks of SLURM.
#pragma once
#include "codegen/lint/job_script.h"

namespace distsetup::lint {

void check_job_text(const JobScript& in);

}  // namespace distsetup::lint
