// What of a run lies on the host or on its drives, and what is moved with it.
#pragma once
#include "planner/resolve/resolving.h"

namespace distsetup {

// What the bundled trainer does not move to the host.
void resolve_native_offload(Resolving& r);
// For other trainers.
void resolve_offload(Resolving& r);

}  // namespace distsetup
