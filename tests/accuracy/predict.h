// The planner's own predictors, asked for one row's Setup. Nothing here corrects what they say.
#pragma once
#include "planner/frameworks/setup.h"
#include "planner/time/calibration.h"
#include "row.h"

namespace distsetup::accuracy {

struct Prediction {
  double allocated_gib = 0, reserved_gib = 0, device_gib = 0, tokens_per_s_per_gpu = 0;  // 0: not predicted
  bool ran_out = false;                                                                  // the replay could not allocate
  double of(Metric metric) const;
};

Prediction predict_memory(const Setup& setup);
double predict_tokens_per_s_per_gpu(const Setup& setup, const Calibration& calibration);

}  // namespace distsetup::accuracy
