// HTML from a template of templates/_service/ and values. {{name}} is escaped, {{&name}} is not: that form is for drawings made here.
// {{>part}} is the template of that name. Strict: a name without a value is a bug of ours and ends the program.
#pragma once
#include <string>
#include <string_view>

#include "base/json_fwd.h"

namespace distsetup {

// Values are texts, switches, lists and objects; numbers are written as texts before. Null is a switch that is off.
std::string render_html(std::string_view template_name, const Json& values);
// A file of templates/_service/ as it is: "page.css".
std::string_view page_file(std::string_view name);
// Text that any reader can show: what is no UTF-8 and what controls a terminal becomes U+FFFD, line ends and tabs stay.
std::string shown_text(std::string_view text);
std::string escape_html(std::string_view text);

}  // namespace distsetup
