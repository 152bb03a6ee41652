// Residuals of the held-out predictions by class, as planner/uncertainty reads them, and how often the intervals hold.
#pragma once
#include "planner/report/uncertainty.h"
#include "score.h"

namespace distsetup::accuracy {

// Constants "residual.<quantity>.<class>.{low,high,n}" of all classes with at least kFewest rows.
inline constexpr int kFewest = 6;
// And "measured.<memory|time>.<feature>": how many rows have it.
Calibration residuals(const std::vector<const Scored*>& rows);
Calibration residuals(const std::vector<Scored>& rows);
Predicted quantity(Metric metric);
// Near the GPU's capacity the allocator returns cached blocks to go on: what is measured there is the capacity, not the need.
bool censored(const Scored& row, const Measurement& m);

struct IntervalScore {
  Metric metric = Metric::kAllocated;
  int n = 0;
  double coverage = 0, median_half_width = 0;  // percent
};
// Each row against the intervals of the other rows of its class, so that a row never widens its own.
std::vector<IntervalScore> interval_scores(const std::vector<Scored>& rows);

}  // namespace distsetup::accuracy
