// What a rank's memory was predicted to be and what it is.
#pragma once
#include "runtime/engine/bind.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/step_meter.h"

namespace distsetup {

// Most that was alive at once so far; 0: there is no meter. Costs no more than reading the meter.
int64_t metered_peak_bytes(const StepMeter& meter);
MemoryReport memory_report(const Schedule& step, const RankMemory& memory, const StepMeter& meter);

}  // namespace distsetup
