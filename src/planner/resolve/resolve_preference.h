// Learning from preference pairs (method dpo) with the bundled trainer: its settings, and whether the data are pairs.
#pragma once
#include "planner/resolve/resolving.h"

namespace distsetup {

void resolve_preference(Resolving& r);
// What the reference needs, once adapters are known.
void check_reference_setting(Resolving& r);
// After the data are known.
void check_pairs(Resolving& r);

}  // namespace distsetup
