// A word of the user's as the value of a setting: type, choices and their other spellings, units, range.
#pragma once
#include "base/value.h"
#include "planner/spec/spec.h"
#include "planner/spec/spec_table.h"

namespace distsetup {

// A scalar, from wherever it comes.
Result<Setting> parse_scalar(const SpecKey& key, const Value& value);
// A setting in a file: lists too, and YAML's own traps (no, 1e-4, 012) are looked at before the alias table is.
Result<Setting> parse_value(const SpecKey& key, const Value& value);

}  // namespace distsetup
