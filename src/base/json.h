// JSON output: keys sorted, integers as integers, doubles in shortest round-trip form, two-space indent, one final newline.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace distsetup {

using Json = nlohmann::json;  // std::map inside: keys sorted

std::string dump_json(const Json& json);  // indented, ends in '\n'

}  // namespace distsetup
