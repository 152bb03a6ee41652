// Keys of a file that do not go together (`checks` of a table).
#pragma once
#include <vector>

#include "codegen/read/found.h"
#include "codegen/read/reading.h"
#include "codegen/tables/key_table.h"

namespace distsetup {

std::vector<Complaint> complaints_about(const KeyTable& table, const std::vector<FoundKey>& found);

}  // namespace distsetup
