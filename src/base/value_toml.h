// TOML 1.0 text to a Value, with places: what a TOML file says twice, or redefines, is an error. Tables and inline tables are maps,
// arrays and arrays of tables are lists, strings are quoted scalars; numbers, booleans and dates are bare scalars. Numbers are
// written as YAML and JSON know them ('_' removed, 0x, 0o and 0b as decimals), so that as_int and as_double read them.
#pragma once
#include <string_view>

#include "base/value.h"

namespace distsetup {

Result<Value> parse_toml(std::string_view text, std::string_view file_name);

}  // namespace distsetup
