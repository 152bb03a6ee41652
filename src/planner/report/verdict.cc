#include "planner/report/verdict.h"

namespace distsetup {

Verdict verdict_of(const Interval& needed_bytes, int64_t capacity_bytes) {
  const auto capacity = static_cast<double>(capacity_bytes);
  if (needed_bytes.high <= capacity) return Verdict::kFits;
  return needed_bytes.low > capacity ? Verdict::kDoesNotFit : Verdict::kTight;
}

}  // namespace distsetup
