// Which variables a text asks for.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// Names that the text expands, with where; single-quoted parts are left out.
std::vector<std::pair<std::string, size_t>> expansions(std::string_view text, TextSpan range);

}  // namespace distsetup::foreign
