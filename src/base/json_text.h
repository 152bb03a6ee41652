// JSON out of text, read in one place: the reader is a large template.
#pragma once
#include <string_view>

#include "base/json_fwd.h"

namespace distsetup {

// What is no JSON is_discarded().
Json json_from_text(std::string_view text);
OrderedJson ordered_json_from_text(std::string_view text);  // members of an object in the order of the text

}  // namespace distsetup
