// The verdict of any plan: one rule for all trainers, from the bytes that a run needs of a device, how far that can be wrong, and what
// the device has.
#pragma once
#include <cstdint>

#include "plan/plan.h"

namespace distsetup {

// Where a value lies: of a prediction, with a probability that is said where it is made.
struct Interval {
  double low = 0, high = 0;
};

// How far the truth may be from a prediction, as logarithms: in 5 runs of 100 it is below prediction * exp(-below), in 5 above
// prediction * exp(above). Each side falls off as half a normal distribution, so that the prediction is the median; a heavy one as
// half of Student's t of 2 degrees of freedom: most unseen code bases are close, and a few are off by far. 0: exact.
struct Spread {
  double below = 0, above = 0;
  bool is_heavy = false;
};
Interval interval_90(double predicted, const Spread& spread);

// The probability that a run which is predicted to need so much comes through.
double chance_to_fit(double need_bytes, double capacity_bytes, const Spread& spread);

inline constexpr double kFitsFrom = 0.98, kDoesNotFitUpTo = 0.2;
Verdict verdict_of(double fit_probability);

}  // namespace distsetup
