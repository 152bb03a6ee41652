// Parts of a file: named sections of which one is taken, and defaults (`parts` of a table).
#pragma once
#include "codegen/read/found.h"
#include "codegen/read/reading.h"
#include "codegen/tables/key_table.h"

namespace distsetup {

// The keys of a file under a table's names: the chosen parts in their places, what was not chosen told.
struct TakenParts {
  std::vector<FoundKey> found;
  std::vector<LostKey> lost;
  std::string stage, setup;
  std::vector<std::string> assigned;
  size_t num_sections = 0;  // sections of the table's that the file has
  Diagnostics diagnostics;  // no such stage
};
TakenParts take_parts(const KeyTable& table, const Value& root, const ReadChoices& choices);

}  // namespace distsetup
