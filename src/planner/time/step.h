// Seconds of one optimizer step of any trainer.
#pragma once
#include "planner/time/constants.h"

namespace distsetup {

struct TimeEstimate {
  double step_s = 0;
  double tokens_per_s_per_gpu = 0;
  double mfu = 0, hfu = 0;  // causal attention at half; hfu counts recomputation
  // Seconds per step, exposed (not hidden behind compute) for communication.
  double gemm_s = 0, attention_s = 0, elementwise_s = 0, loss_s = 0, recompute_s = 0, communication_exposed_s = 0, bubble_s = 0,
         optimizer_s = 0, offload_exposed_s = 0, launch_s = 0;
};

TimeEstimate estimate_time(const Setup& setup, const TimeConstants& constants);
TimeEstimate estimate_time(const Setup& setup, const Calibration& calibration);
TimeEstimate estimate_time(const Setup& setup);  // with the constants of presets/calibration

}  // namespace distsetup
