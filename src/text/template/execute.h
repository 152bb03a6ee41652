// Running the blocks of a template.
#pragma once
#include "text/template/template_run.h"

namespace distsetup::jinja {

void execute_template(TemplateRun& run, const Syntax& syntax);

// A macro, or the body of a call block, with its arguments: the text it writes.
PyValue call_macro(TemplateRun& run, const PyValue& macro, CallArguments arguments);

}  // namespace distsetup::jinja
