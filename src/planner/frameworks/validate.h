// What a trainer cannot run.
#pragma once
#include "base/diagnostic.h"
#include "planner/frameworks/setup.h"

namespace distsetup {

// What this trainer cannot run, by name (a mesh that does not divide, an option that belongs to another framework).
Diagnostics validate(const Setup& setup);

}  // namespace distsetup
