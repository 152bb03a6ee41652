// The goal of least cost: the cheapest machine and number of nodes.
#pragma once
#include "planner/resolve/problem.h"

namespace distsetup {

// Over the problem's machine, or all that are compared when no hardware was given. Error: no price is known.
Result<Plan> least_cost(const Problem& problem);

}  // namespace distsetup
