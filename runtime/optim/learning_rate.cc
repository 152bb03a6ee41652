#include "runtime/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace distsetup {

double learning_rate(const TrainPlan& train, int64_t step) {
  const int64_t warmup = std::clamp<int64_t>(train.warmup_steps, 0, train.steps);
  if (step < warmup) return train.learning_rate * double(step + 1) / double(warmup);
  const int64_t last = train.steps - 1, start = std::max<int64_t>(warmup - 1, 0);  // the peak is at `start`
  if (step >= last) return last > start ? train.min_learning_rate : train.learning_rate;
  const double progress = double(step - start) / double(last - start);
  return train.min_learning_rate + 0.5 * (train.learning_rate - train.min_learning_rate) * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace distsetup
