// JSON text to a Value. Duplicate keys are errors; unlike in YAML, '-' and '_' make different keys.
#pragma once
#include <string_view>

#include "base/value.h"

namespace distsetup {

Result<Value> parse_json(std::string_view text, std::string_view file_name);

}  // namespace distsetup
