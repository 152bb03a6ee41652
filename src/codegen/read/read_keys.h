// The walk that reads: one table over the keys of one file.
#pragma once
#include <string>
#include <vector>

#include "codegen/read/found.h"
#include "codegen/read/reading.h"
#include "codegen/tables/key_table.h"

namespace distsetup {

Reading read_keys(const KeyTable& table, const std::vector<FoundKey>& found, const std::string& file);

}  // namespace distsetup
