// The name of our JSON type without its definition, for headers that only pass it on: the definition costs a second of compile time.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace distsetup {

using Json = nlohmann::json;  // std::map inside: keys sorted

}  // namespace distsetup
