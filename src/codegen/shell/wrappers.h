// Programs that start the rest of their line on the same node: containers, environments, limits.
#pragma once
#include <string_view>

namespace distsetup::foreign {

bool starts_rest_of_line(std::string_view word);

}  // namespace distsetup::foreign
