// The verdict of any plan: one rule for all trainers, over the range in which its need lies.
#pragma once
#include <cstdint>

#include "plan/plan.h"

namespace distsetup {

// Where a value lies: of a prediction, with a probability that is said where it is made.
struct Interval {
  double low = 0, high = 0;
};

// fits: what is needed at most is there; does_not_fit: not even what is needed at least is. Bytes of one device.
Verdict verdict_of(const Interval& needed_bytes, int64_t capacity_bytes);

}  // namespace distsetup
