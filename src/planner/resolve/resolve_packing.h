// Packing as it is asked for: which plans can be packed (plan/packed_rows.h), and what then remains to choose from.
#pragma once
#include "planner/resolve/resolving.h"

namespace distsetup {

// After the data, the hardware and the axes are known.
void resolve_packing(Resolving& resolving);

}  // namespace distsetup
