// What a rank's memory was predicted to be and what it is.
#pragma once
#include "runtime/engine/bind.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/step_meter.h"

namespace distsetup {

MemoryReport memory_report(const Schedule& step, const RankMemory& memory, const StepMeter& meter);

}  // namespace distsetup
