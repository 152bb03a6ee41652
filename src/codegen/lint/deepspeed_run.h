// DeepSpeed's JSON beside what runs with it: schedules, who reads the file, other kinds of parallelism.
#pragma once
#include "codegen/lint/deepspeed_file.h"

namespace distsetup::lint {

void check_deepspeed_run(const DeepspeedFile& in);

}  // namespace distsetup::lint
