// What of files could not be carried over, as a command tells it.
#pragma once
#include <string>
#include <vector>

#include "codegen/read/reading.h"

namespace distsetup {

// A line each, with its place and why; of many with one reason the first says it. "": there is none.
std::string lost_text(const std::vector<LostKey>& lost);

}  // namespace distsetup
