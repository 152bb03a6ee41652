// dataset.json of a prepared set: its text, and back.
#pragma once
#include <string>
#include <string_view>

#include "data/prepared_set.h"

namespace distsetup {

std::string format_set_description(const SetDescription& set);
Result<SetDescription> parse_set_description(std::string_view text, const std::string& path);

}  // namespace distsetup
