// Which rule leaves the search without a mesh. Internal to the search.
#pragma once
#include "base/diagnostic.h"
#include "planner/resolve/problem.h"

namespace distsetup {

Diagnostics why_nothing(const Problem& problem, int nodes);

}  // namespace distsetup
