// Keys with their values as the text of a format: JSON, YAML, TOML, directives, arguments.
#pragma once
#include <string>

#include "codegen/tables/key_walk.h"

namespace distsetup {

// Directives: "#SBATCH --key=value" lines, a true value "#SBATCH --key", false nothing.
// Arguments: a line "  --key value" each, words of bash for the inside of an array; a list is several words, booleans as above.
std::string write_entries(const Entries& entries, TableFormat format);

}  // namespace distsetup
