// Methods of dicts, lists, tuples, loops and numbers.
#pragma once
#include "text/template/template_run.h"

namespace distsetup::jinja {

PyValue call_container_method(const PyValue& self, std::string_view name, const CallArguments& arguments);

}  // namespace distsetup::jinja
