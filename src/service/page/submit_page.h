// The form that plans before it submits, and what its fields mean as a request of the API.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "service/page/views.h"

namespace distsetup {

using FormFields = std::map<std::string, std::string>;

std::string submit_page(const SubmitView& view, std::string_view version);
// "a=1&b=%20" as names and values; a name twice: the last counts.
FormFields read_form(std::string_view body);
std::string encode_form_value(std::string_view text);
// The body that `supervised-fine-tune` or `preference-optimize` takes. A number that is none stays the text that was typed: the
// service refuses it by name.
Json request_of_form(const FormFields& fields);
// "supervised-fine-tune" or "preference-optimize"
std::string_view action_of_form(const FormFields& fields);

}  // namespace distsetup
