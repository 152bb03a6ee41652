// `value | name(arguments)`: the filters of jinja2 that chat templates use, with transformers' own tojson.
#pragma once
#include "text/template/template_run.h"

namespace distsetup::jinja {

const std::vector<std::string>& filter_names();
PyValue apply_filter(TemplateRun& run, std::string_view name, const PyValue& input, const CallArguments& arguments);

using Filter = PyValue (*)(TemplateRun&, const PyValue& input, const CallArguments& arguments);
struct NamedFilter {
  std::string_view name;
  Filter apply;
};

}  // namespace distsetup::jinja
