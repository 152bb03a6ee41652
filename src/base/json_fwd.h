// The names of our JSON types without their definition, for headers that only pass it on: the definition costs a second of compile
// time.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace distsetup {

using Json = nlohmann::json;                 // std::map inside: keys sorted
using OrderedJson = nlohmann::ordered_json;  // keys in the order in which they were given

}  // namespace distsetup
