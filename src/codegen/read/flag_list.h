// A trainer's command line in another trainer's spelling: whose it is, and which of its words are that one's. A table whose `marks`
// are among the flags is asked; where no table has marks there, every word is the caller's own.
#pragma once
#include <string>
#include <vector>

#include "codegen/read/reading.h"
#include "codegen/tables/templates.h"

namespace distsetup {

struct FlagList {
  std::string table, tool;         // empty: no table marks these flags
  Reading reading;                 // of the flags that the table knows
  std::vector<std::string> rest;   // all other words, in order
  std::vector<std::string> known;  // flags of the table, with dashes: for "did you mean"
};

// `--flag value`, `--flag=value`, `--flag` alone, `--flag a b c`, and `--no-flag` where the table has the flag itself; '-' and '_' the
// same. Errors: a table that cannot be read.
Result<FlagList> read_flag_list(const TemplateSet& templates, const std::vector<std::string>& words);

}  // namespace distsetup
