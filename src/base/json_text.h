// Reads JSON out of text, in one place, because the reader is a large template.
#pragma once
#include <string_view>

#include "base/json_fwd.h"

namespace distsetup {

// Text that is not JSON gives a value that is_discarded().
Json json_from_text(std::string_view text);
OrderedJson ordered_json_from_text(std::string_view text);  // members of an object in the order of the text

}  // namespace distsetup
