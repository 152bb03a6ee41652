// The one way JSON is printed, so that equal values are equal bytes. JSON has no NaN and no infinity and nlohmann would write
// `null` for them; a number that is not finite is a bug of ours, so it stops here.
#include "base/json.h"

#include <cmath>

#include "base/check.h"

DISTSETUP_MEMBERS_OF_JSON(template)

namespace distsetup {
namespace {

void check_finite(const Json& json) {
  if (json.is_number_float()) CHECK(std::isfinite(json.get<double>()), "a number in JSON output is {}", json.get<double>());
  if (json.is_structured()) {
    for (const Json& child : json) check_finite(child);
  }
}

}  // namespace

std::string dump_json(const Json& json) {
  check_finite(json);
  // Text that came from a path or a foreign file may not be UTF-8: such bytes become U+FFFD instead of an exception.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace distsetup
