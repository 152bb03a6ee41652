#include "planner/report/verdict.h"

#include <algorithm>
#include <cmath>

namespace distsetup {

Interval interval_90(double predicted, const Spread& spread) {
  return {predicted * std::exp(-spread.below), predicted * std::exp(spread.above)};
}

double chance_to_fit(double need_bytes, double capacity_bytes, const Spread& spread) {
  constexpr double kZ = 1.6449, kHeavyZ = 2.92;  // of 95 in 100
  if (need_bytes <= 0) return 1;
  if (capacity_bytes <= 0) return 0;
  const double room = std::log(capacity_bytes / need_bytes), side = room < 0 ? spread.below : spread.above;
  if (side <= 0) return room < 0 ? 0 : 1;
  if (spread.is_heavy) {
    const double t = room / side * kHeavyZ;
    return 0.5 + t / (2 * std::sqrt(2 + t * t));
  }
  constexpr double kSurest = 0.9999;  // no interval of measured runs says more
  return std::min(kSurest, 0.5 * std::erfc(-room / side * kZ / std::sqrt(2.0)));
}

Verdict verdict_of(double fit_probability) {
  if (fit_probability >= kFitsFrom) return Verdict::kFits;
  return fit_probability <= kDoesNotFitUpTo ? Verdict::kDoesNotFit : Verdict::kTight;
}

}  // namespace distsetup
