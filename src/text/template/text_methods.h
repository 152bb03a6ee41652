// Methods of texts, as Python's str has them. A text that is marked safe answers with such texts, and escapes what it takes in.
#pragma once
#include "text/template/template_run.h"

namespace distsetup::jinja {

PyValue call_text_method(const PyValue& self, std::string_view name, const CallArguments& arguments);

}  // namespace distsetup::jinja
