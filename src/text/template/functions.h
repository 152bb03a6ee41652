// The functions that every template has: range, namespace, dict, raise_exception, strftime_now.
#pragma once
#include "text/template/template_run.h"

namespace distsetup::jinja {

bool is_function(std::string_view name);
PyValue call_function(TemplateRun& run, const PyValue& callee, const CallArguments& arguments);

}  // namespace distsetup::jinja
