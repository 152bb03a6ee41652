// What a configuration file says, one key at a time: the common form of JSON, YAML and TOML files, of #SBATCH lines and of a
// launcher's flags, before anybody knows what a key means.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"

namespace distsetup {

// A key with its value as it is written. A list is its items; the text of a list is its items joined by commas.
struct FoundKey {
  std::string key;  // path, '.' between levels; flags and directives without dashes, '_' as it is written
  std::string text;
  std::vector<std::string> items;  // of a list; of a flag with several words, all of them
  bool is_list = false;
  bool stands_alone = false;  // a flag without a value
  bool is_null = false;       // the file says null
  bool is_assumed = false;    // not in the file: what the tool takes for it (`absent` of a table)
  bool is_maybe = false;      // only the running script knows whether it is given
  std::string unknown;        // why the value is not known before the job runs ("$GPUS is not set in this file"); empty = it is known
  Location at;
};

// Leaves of a tree, in file order. {} is left out: every tool takes it for "not given", and null too, unless a table has a row
// `of: null` (take_parts). A list of maps is one leaf, but one of those at `lists`, whose entries are sections "0", "1", ...
std::vector<FoundKey> found_in(const Value& root, const std::vector<std::string>& lists = {});

// "{LIMIT_TIME}", "<account>": filled in before the script is a script.
bool is_placeholder(std::string_view value);

}  // namespace distsetup
