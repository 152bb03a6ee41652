// What of files could not be carried over, as a command tells it.
#pragma once
#include <string>
#include <vector>

#include "codegen/read/reading.h"

namespace distsetup {

// What was read as what, and what could not be carried over, a line each.
std::string lost_text(const std::vector<LostKey>& lost);

}  // namespace distsetup
