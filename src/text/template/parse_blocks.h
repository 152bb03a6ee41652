// A template's blocks. What jinja2 has and chat templates do not use (include, import, extends, recursive loops …) is refused by name.
#pragma once
#include <string_view>

#include "text/template/syntax.h"

namespace distsetup::jinja {

Syntax parse_syntax(std::string_view source);  // fails with line and column

}  // namespace distsetup::jinja
