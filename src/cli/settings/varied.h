// Settings that are varied: `--over KEY=V1,V2`, and every combination of their values. What `sweep` plans and `tune` trains.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cli/line/flags.h"

namespace distsetup {

struct VariedSetting {
  std::string path, name;  // of the key; as it was typed
  std::vector<std::string> values;
};
// Of --over, else of hyperparam_search_config in a request to a training service that is among the files; at most `most`. Errors:
// none, too many, not KEY=VALUE,VALUE, an unknown key.
Result<std::vector<VariedSetting>> read_varied(const Arguments& arguments, size_t most);

using Combination = std::vector<std::pair<std::string, std::string>>;  // a path and its value, for each setting
// The first setting varies slowest.
std::vector<Combination> combinations(const std::vector<VariedSetting>& settings);
std::string label_of(const Combination& one);               // "1e-4 × 0.1"
std::string heading_of(const std::vector<VariedSetting>&);  // "learning-rate × beta"

}  // namespace distsetup
