// `x is defined`, `x is string` …: the tests of jinja2.
#pragma once
#include "text/template/template_run.h"

namespace distsetup::jinja {

const std::vector<std::string>& test_names();
bool apply_test(std::string_view name, const PyValue& value, const CallArguments& arguments);

}  // namespace distsetup::jinja
