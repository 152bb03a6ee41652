// What to change when nothing fits. Each proposal is the same problem with one pin loosened or one fact changed, solved again: what is
// printed is known to fit.
#pragma once
#include <string>
#include <vector>

#include "planner/resolve/problem.h"

namespace distsetup {

struct Fix {
  std::string flags;   // to paste: "--recompute full"
  std::string effect;  // "62.1 GiB, 1.31 × the time per token"
  double seconds_per_token = 0;
};
// For a plan that does not fit: what would, cheapest first in step time.
std::vector<Fix> find_fixes(const Problem& problem, const Plan& plan);

}  // namespace distsetup
