// What a plan of the bundled trainer is timed with: settled once from the calibration, carried by the plan, and read back.
#pragma once
#include "planner/time/constants.h"

namespace distsetup {

// deterministic: TrainPlan::deterministic.
RatesPlan native_rates(const Gpu& gpu, Dtype compute, bool deterministic, const Calibration& calibration);
TimeConstants time_constants(const RatesPlan& rates);

}  // namespace distsetup
