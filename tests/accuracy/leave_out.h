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

// Constants "unseen.<memory|time>.<difficulty>.{below,above}": the widths beyond which one in ten rows of a left-out code base is that
// was read before its rows were predicted. Quantile regression of what rows miss by; a code base counts as the root of its rows. And
// "unseen.<memory|time>.first_sight": how many times as wide they have to be for code that nobody has read, so that nine in ten of the
// kept first sights are inside; each code base counts as one. Widths and times are learned from different code bases: what one of them
// shows at first sight would else be learned as a difficulty, and no longer surprise. Without the rows of `code_base`, if any is
// named.
Calibration fit_unseen(const std::vector<Scored>& rows, const std::string& code_base = "");
Calibration fit_unseen(const std::vector<Scored>& rows, const std::set<std::string>& left_out);

struct LeftOut {
  std::string name;  // of a metric, or of a code base
  int n = 0, inside = 0;
  double mape = 0, median = 0, median_half_width = 0;  // percent
  double chance = 1;                                   // that so few are inside if nine in ten should be
};
// Of the predictions that were made before a code base was read, with what all other code bases say.
struct FirstSights {
  std::string group;  // "memory", "time"
  std::string kind;   // of runs: "plain", "adapters", "split models", "offloading", "experts"; empty: all
  int code_bases = 0, n = 0, inside = 0;
  double inside_by_code_base = 0;  // the mean share
  double median_half_width = 0;    // percent
};
struct LeaveOutScore {
  std::vector<LeftOut> metrics, code_bases;
  std::vector<FirstSights> first_sights;
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
