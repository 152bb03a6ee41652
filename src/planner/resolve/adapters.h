// Which matrices get adapters, of which rank, beside which frozen weights.
#pragma once
#include <string_view>

#include "planner/resolve/problem.h"
#include "planner/spec/spec.h"

namespace distsetup {

// Adapters as the settings say, where a plan has some; refuses targets that are none by name.
Diagnostics resolve_adapters(const Spec& spec, Problem& problem);
// Adapters of the default rank on every matrix that gets one; `kind`: lora or qlora.
void set_adapters(Setup& setup, std::string_view kind);

}  // namespace distsetup
