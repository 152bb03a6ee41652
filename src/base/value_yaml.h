// YAML text to a Value. Stricter than YAML: one document, keys are text and given once, no tags but !!str, no merge keys.
#pragma once
#include <string>
#include <string_view>

#include "base/value.h"

namespace distsetup {

Result<Value> parse_yaml(std::string_view text, std::string_view file_name);
Result<Value> read_yaml_file(const std::string& path);

}  // namespace distsetup
