// Keys of the table by path and by flag, and what their types are called.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "planner/spec/spec_table.h"

namespace distsetup {

std::string_view name(SettingType type);  // as help prints it: "integer", "size", "duration", ...
// nullptr: there is none.
const SpecKey* find_spec_key(std::string_view path);
// By any spelling, with or without leading dashes, '-' and '_' the same.
const SpecKey* find_spec_flag(std::string_view flag);
// Of a flag that means two things whatever its value is: which, and what to write. "" = it is none.
std::string_view ambiguous_flag(std::string_view flag);
std::vector<std::string> spec_flag_names();  // every spelling, with dashes: for "did you mean"

}  // namespace distsetup
