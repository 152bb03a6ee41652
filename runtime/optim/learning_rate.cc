#include "runtime/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace distsetup {
namespace {

constexpr double kInverseSqrtSteps = 10'000;  // without a warm-up the peak lasts as if one of so many steps had ended

// From the peak at step `start` on, to step `last` > start.
double after_peak(const TrainPlan& train, int64_t step, int64_t start, int64_t last) {
  const double peak = train.learning_rate, least = train.min_learning_rate;
  const double part = double(step - start) / double(last - start);
  switch (train.lr_schedule) {
    case LearningRateSchedule::kCosine: return least + 0.5 * (peak - least) * (1 + std::cos(std::numbers::pi * part));
    case LearningRateSchedule::kLinear: return peak + part * (least - peak);
    case LearningRateSchedule::kConstant: return peak;
    case LearningRateSchedule::kWsd: {
      const int64_t decay = std::clamp<int64_t>(train.lr_decay_steps, 1, last - start);
      return step <= last - decay ? peak : peak + double(step - (last - decay)) / double(decay) * (least - peak);
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
  const bool ends_at_least = train.lr_schedule == LearningRateSchedule::kCosine ||
                             train.lr_schedule == LearningRateSchedule::kLinear || train.lr_schedule == LearningRateSchedule::kWsd;
  if (step >= last && ends_at_least) return train.min_learning_rate;  // exactly
  return std::max(train.min_learning_rate, after_peak(train, std::min(step, last), start, last));
}

}  // namespace distsetup
