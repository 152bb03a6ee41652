#include "planner/resolve/run_length.h"

#include <algorithm>
#include <cmath>

namespace distsetup {

int64_t warmup_of(const RunLength& length, int64_t steps) {
  if (length.warmup_steps.has_value()) return *length.warmup_steps;
  return length.warmup_ratio.has_value() ? warmup_steps_of(*length.warmup_ratio, steps) : std::min<int64_t>(100, steps / 10);
}

int64_t decay_of(const RunLength& length, const TrainPlan& train) {
  const bool is_step = train.lr_schedule == LearningRateSchedule::kStep;
  if (train.lr_schedule != LearningRateSchedule::kWsd && !is_step) return 0;
  return length.decay_steps.value_or(std::max<int64_t>(1, train.steps / (is_step ? 3 : 10)));
}

void settle_length(const RunLength& length, TrainPlan& train) {
  if (!length.is_given()) return;
  const double per_step =
      static_cast<double>(train.global_batch) * (length.tokens > 0 ? static_cast<double>(train.sequence_length) : 1);
  const auto whole = static_cast<double>(length.tokens > 0 ? length.tokens : length.sequences);
  if (per_step <= 0) return;
  train.steps = std::max<int64_t>(1, static_cast<int64_t>(std::min(std::ceil(whole / per_step), 1e12)));
  train.warmup_steps = std::min(warmup_of(length, train.steps), train.steps);
  train.lr_decay_steps = decay_of(length, train);
  if (train.lr_schedule == LearningRateSchedule::kWsd)
    train.lr_decay_steps = std::min(train.lr_decay_steps, train.steps - train.warmup_steps);
}

}  // namespace distsetup
