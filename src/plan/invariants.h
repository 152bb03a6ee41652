// Every rule a schedule must obey (README.md in this folder).
#pragma once
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// The rules that are broken, as messages; empty: all hold. Works on unexpanded and expanded lists.
std::vector<std::string> check_invariants(const Plan& plan, const Schedule& schedule);

}  // namespace distsetup
