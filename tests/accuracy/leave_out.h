// How well a code base is predicted that nothing was fitted to: constants of time and intervals without its rows. And how much wider
// an interval has to be for what no measured run covers (planner/report/distance.h), learned in the same way.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "intervals.h"
#include "score.h"

namespace distsetup::accuracy {

using ResidualsByCodeBase = std::map<std::string, Calibration>;  // without the code base of that name

ResidualsByCodeBase residuals_without_each(const std::vector<Scored>& rows);

// Constants "distance.<memory|time>.<kind>": the half-widths with which nine in ten rows of a left-out code base are inside. Quantile
// regression of what rows miss by, over the features that the other code bases do not cover; a code base counts as the root of its
// rows.
Calibration fit_distances(const std::vector<Scored>& rows, const ResidualsByCodeBase& without);

struct LeftOut {
  std::string name;  // of a metric, or of a code base
  int n = 0, inside = 0;
  double mape = 0, median = 0, median_half_width = 0;  // percent
  double chance = 1;                                   // that so few are inside if nine in ten should be
};
struct LeaveOutScore {
  std::vector<LeftOut> metrics, code_bases;
  int n = 0, inside = 0;
};
// With `fallback` for code bases that are not in `without`.
LeaveOutScore leave_out_score(const std::vector<Scored>& rows, const ResidualsByCodeBase& without, const Calibration& fallback);

}  // namespace distsetup::accuracy
