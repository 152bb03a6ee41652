// What to change when nothing fits. Each proposal is the same problem with one pin loosened or one fact changed, solved again: what is
// printed is known to fit.
#pragma once
#include <string>
#include <vector>

#include "planner/resolve/problem.h"

namespace distsetup {

struct Fix {
  enum class Needs { kNothing, kMoreGpus, kOtherGpus };  // beyond the hardware that the user has
  std::string flags;                                     // to paste: "--recompute full"
  std::string effect;                                    // "62.1 GiB, 1.31 × the time per token"
  double seconds_per_token = 0;
  Needs needs = Needs::kNothing;
};
// For a plan that does not fit: what would; first what needs no other hardware, then cheapest first in step time.
std::vector<Fix> find_fixes(const Problem& problem, const Plan& plan);

}  // namespace distsetup
