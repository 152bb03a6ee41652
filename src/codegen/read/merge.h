// Several files as one.
#pragma once
#include <vector>

#include "codegen/read/reading.h"

namespace distsetup {

// Errors: two files that say different things (both places are told).
Result<ReadFields> merge_readings(const std::vector<Reading>& readings);

}  // namespace distsetup
