// A flag that a command does not have: what was meant, as far as its name and its value tell.
#pragma once
#include <string_view>

#include "base/diagnostic.h"
#include "cli/line/flags.h"

namespace distsetup {

// value: what was written behind it; "" = nothing.
Diagnostic unknown_flag(const Command& command, std::string_view word, std::string_view value);

}  // namespace distsetup
