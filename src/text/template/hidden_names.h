// jinja2 decides before a template runs where a name lives. A name that the template sets at its top level before it reads it is the
// template's own from the start: undefined until then, even where the values given have one of that name (a macro or loop above reads
// it).
#pragma once
#include "text/template/syntax.h"

namespace distsetup::jinja {

std::vector<std::string> hidden_names(const Body& body);

}  // namespace distsetup::jinja
