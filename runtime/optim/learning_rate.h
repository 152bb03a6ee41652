// The learning rate as a function of the step and of nothing else: no state to save, the same after a resume.
#pragma once
#include <cstdint>

#include "plan/plan.h"

namespace distsetup {

// `step` counts optimizer steps from 0. Linear warm-up: step s < warmup_steps uses learning_rate · (s + 1) / warmup_steps, so that the
// last warm-up step reaches the peak. From there:
//   cosine        half a cosine (Loshchilov and Hutter, arXiv 1608.03983, without restarts) down to min_learning_rate, which the last
//                 step uses
//   linear        a straight line that reaches min_learning_rate behind the last step, so that none is taken with a rate of 0
//   constant      the peak
//   wsd           the peak, then in the last lr_decay_steps the same line to min_learning_rate (Hu et al., arXiv 2404.06395, have
//                 the three parts; Hägele et al., arXiv 2405.18392, the line)
//   inverse_sqrt  peak · √(w / (s + 1)) with w = warmup_steps, 10,000 where there are none (Vaswani et al., arXiv 1706.03762)
//   step          peak · lr_decay_factor^⌊steps since the peak / lr_decay_steps⌋
// None falls below min_learning_rate; steps beyond the last keep what the last one used.
double learning_rate(const TrainPlan& train, int64_t step);

}  // namespace distsetup
