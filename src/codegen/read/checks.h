// Keys of a file that do not go together (`checks` of a table).
#pragma once
#include <string>
#include <vector>

#include "codegen/read/found.h"
#include "codegen/read/reading.h"
#include "codegen/tables/key_table.h"

namespace distsetup {

std::vector<Complaint> complaints_about(const KeyTable& table, const std::vector<FoundKey>& found);

// The key of the file that names a module with keys of its own (`extended_by` of a table); "": none.
std::string extended_by(const KeyTable& table, const std::vector<FoundKey>& found);

}  // namespace distsetup
