// The learning rate as a function of the step and of nothing else: no state to save, the same after a resume.
#pragma once
#include <cstdint>

#include "plan/plan.h"

namespace distsetup {

// `step` counts optimizer steps from 0. Linear warm-up: step s < warmup_steps uses learning_rate · (s + 1) / warmup_steps, so that the
// last warm-up step reaches the peak; then half a cosine down to min_learning_rate, which the last step (steps - 1) uses exactly and
// later steps keep. Source of the cosine: Loshchilov and Hutter, arXiv 1608.03983, without restarts.
double learning_rate(const TrainPlan& train, int64_t step);

}  // namespace distsetup
