// How well a code base is predicted that nothing was fitted to: constants of time and intervals without its rows. And how far such
// predictions err (planner/report/distance.h, unseen_spread), learned in the same way.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "intervals.h"
#include "score.h"

namespace distsetup::accuracy {

using ResidualsByCodeBase = std::map<std::string, Calibration>;  // without the code base of that name

// Intervals of the other code bases alone. None of a code base's rows covers its software, also where others have the same name.
ResidualsByCodeBase residuals_without_each(const std::vector<Scored>& rows);

// Constants "unseen.<memory|time>.<difficulty>.{below,above}": the widths beyond which few rows of a left-out code base are. Quantile
// regression of what rows miss by; a code base counts as the root of its rows. Without the rows of `code_base`, if any is named.
Calibration fit_unseen(const std::vector<Scored>& rows, const std::string& code_base = "");
Calibration fit_unseen(const std::vector<Scored>& rows, const std::set<std::string>& left_out);

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

// Widths learned from a random half of the code bases, held against the other half: of each draw, memory and time, which share of the
// predictions is inside, and of which code base the mean share; the median half-width over all draws.
struct HalfDraw {
  double inside = 0, inside_by_code_base = 0;
};
struct Halves {
  std::string group;  // "memory", "time"
  std::vector<HalfDraw> draws;
  double median_half_width = 0;
};
std::vector<Halves> score_halves(const std::vector<Scored>& rows, int num_draws, uint64_t seed);

}  // namespace distsetup::accuracy
