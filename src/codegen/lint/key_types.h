// The types of keys in templates/_lint/*_keys.yaml, held against values as tools read them.
#pragma once
#include <string>

#include "base/value.h"

namespace distsetup::lint {

// What was expected, when the value is not it: "a whole number above 0".
std::string key_type_mismatch(const std::string& type, const Value& v);

}  // namespace distsetup::lint
