// What a target cannot express is kept out of the search, so that the best plan is one that can be written. What the user pinned
// stays: codegen refuses it by name.
#pragma once
#include <string_view>

#include "codegen/codegen.h"
#include "planner/planner.h"

namespace distsetup {

Diagnostics narrow_to_target(Problem& problem, std::string_view target, const TemplateSet& templates);

}  // namespace distsetup
