// How long a run is where its tokens or samples say it, not its steps: known when the batch is.
#pragma once
#include <cstdint>
#include <optional>

#include "plan/plan.h"

namespace distsetup {

struct RunLength {
  int64_t tokens = 0, sequences = 0;  // of the whole run, one of them; both 0: train.steps says it
  std::optional<int64_t> warmup_steps;
  std::optional<double> warmup_ratio;
  std::optional<int64_t> decay_steps;
  bool is_given() const { return tokens > 0 || sequences > 0; }
};

// Linear warm-up of a run of so many steps, where it is not given in steps.
int64_t warmup_of(const RunLength& length, int64_t steps);
// Steps at the end in which the rate of a `wsd` schedule falls, or between the falls of a `step` schedule; 0 for others.
int64_t decay_of(const RunLength& length, const TrainPlan& train);
// Steps, warm-up and decay of a run whose batch is settled.
void settle_length(const RunLength& length, TrainPlan& train);

}  // namespace distsetup
