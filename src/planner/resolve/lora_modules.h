// What tools call the modules that adapters go on, in the words of --lora-targets for the matrices of a block.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/geometry.h"

namespace distsetup {

// Of one name: q_proj is the query, query_key_value all three; a name that is no module's is left as it is.
std::vector<std::string> matrices_of_module(std::string_view module, const Geometry& model);

}  // namespace distsetup
