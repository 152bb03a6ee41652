// YAML text to a Value. Stricter than YAML: one document, keys are text and given once, no tags but !!str, no merge keys.
#pragma once
#include <string>
#include <string_view>

#include "base/value.h"

namespace distsetup {

// A key that is given twice is an error; with kAllKept the tree is there beside it, with every entry of that key.
Result<Value> parse_yaml(std::string_view text, std::string_view file_name, RepeatedKeys repeats = RepeatedKeys::kRefused);
Result<Value> read_yaml_file(const std::string& path);

}  // namespace distsetup
