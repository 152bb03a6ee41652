// Bytes that library operations take for themselves while they run, by op kernel, device, dtype and shape. A table with its sources:
// the trainer's meter compares it with what is really allocated (see tests/runtime).
#pragma once
#include "plan/schedule.h"

namespace distsetup {

int64_t workspace_bytes(const Step& step, const Schedule& schedule, Accelerator accelerator);

}  // namespace distsetup
