// Rules of an expanded list's memory: bytes are inside their arena, live buffers do not overlap, nothing is touched outside its life
// or read before it is written.
#pragma once
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// Each violated rule as one message. Nothing of a list that is not expanded.
std::vector<std::string> check_memory(const Schedule& schedule);

}  // namespace distsetup
