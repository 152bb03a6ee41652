// What the commands about prepared data sets print alike.
#pragma once
#include <string>

#include "base/json.h"
#include "data/prepared_set.h"

namespace distsetup {

std::string set_text(const SetDescription& set);
Json set_to_json(const SetDescription& set);
// A text must not drive the terminal: its control characters become '?'.
std::string printable(std::string text);

}  // namespace distsetup
