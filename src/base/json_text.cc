#include "base/json_text.h"

#include "base/json.h"

namespace distsetup {

Json json_from_text(std::string_view text) { return Json::parse(text, nullptr, /*allow_exceptions=*/false); }

OrderedJson ordered_json_from_text(std::string_view text) { return OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false); }

}  // namespace distsetup
