// The value of an expression.
#pragma once
#include "text/template/template_run.h"

namespace distsetup::jinja {

PyValue evaluate(TemplateRun& run, const Expression& expression, const ScopePointer& scope);
CallArguments evaluate_arguments(TemplateRun& run, const CallSyntax& syntax, const ScopePointer& scope);
// A variable of the template, a value given, a function; else undefined.
PyValue value_of_name(const TemplateRun& run, const ScopePointer& scope, std::string_view name);
// A chain of filters whose first has no input of its own, applied to `input`.
PyValue apply_filters(TemplateRun& run, const Expression& filters, PyValue input, const ScopePointer& scope);

}  // namespace distsetup::jinja
