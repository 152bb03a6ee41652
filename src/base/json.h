// JSON output: keys sorted, integers as integers, doubles in shortest round-trip form, two-space indent, one final newline.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_fwd.h"

extern template class nlohmann::basic_json<>;  // compiled once, in json.cc

namespace distsetup {

std::string dump_json(const Json& json);  // indented, ends in '\n'

}  // namespace distsetup
