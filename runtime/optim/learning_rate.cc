#include "runtime/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace distsetup {
namespace {

constexpr double kInverseSqrtSteps = 10'000;  // without a warm-up the peak lasts as if one of so many steps had ended

// From the peak at step `start` on, to step `last` > start, the run's last one.
double after_peak(const TrainPlan& train, int64_t step, int64_t start, int64_t last) {
  const double peak = train.learning_rate, least = train.min_learning_rate;
  const double part = double(step - start) / double(last - start);
  switch (train.lr_schedule) {
    case LearningRateSchedule::kCosine: return least + 0.5 * (peak - least) * (1 + std::cos(std::numbers::pi * part));
    case LearningRateSchedule::kLinear: return peak + double(step - start) / double(last + 1 - start) * (least - peak);
    case LearningRateSchedule::kConstant: return peak;
    case LearningRateSchedule::kWsd: {
      const int64_t decay = std::clamp<int64_t>(train.lr_decay_steps, 1, last + 1 - start), begin = last + 1 - decay;
      return step <= begin ? peak : peak + double(step - begin) / double(decay) * (least - peak);
    }
    case LearningRateSchedule::kInverseSqrt: {
      const double steps = train.warmup_steps > 0 ? double(start + 1) : kInverseSqrtSteps;
      return peak * std::sqrt(steps / (steps + double(step - start)));
    }
    case LearningRateSchedule::kStep:
      return peak * std::pow(train.lr_decay_factor, double((step - start) / std::max<int64_t>(1, train.lr_decay_steps)));
  }
  return peak;
}

}  // namespace

double learning_rate(const TrainPlan& train, int64_t step) {
  const int64_t warmup = std::clamp<int64_t>(train.warmup_steps, 0, train.steps);
  if (step < warmup) return train.learning_rate * double(step + 1) / double(warmup);
  const int64_t last = train.steps - 1, start = std::max<int64_t>(warmup - 1, 0);  // the peak is at `start`
  if (last <= start) return train.learning_rate;
  if (step > last && train.lr_schedule != LearningRateSchedule::kCosine) step = last;
  if (step >= last && train.lr_schedule == LearningRateSchedule::kCosine) return train.min_learning_rate;  // exactly
  return std::max(train.min_learning_rate, after_peak(train, step, start, last));
}

}  // namespace distsetup
