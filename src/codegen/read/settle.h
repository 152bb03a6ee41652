// Fields as tools hold them, in terms of a plan's own.
#pragma once
#include "codegen/read/reading.h"

namespace distsetup {

// Derived fields in terms of plan fields: derived.zero_stage 2 is strategy.sharding zero2, and so on. What nothing follows from is
// dropped.
void settle_derived(ReadFields& fields);

}  // namespace distsetup
