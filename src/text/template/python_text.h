// What Python prints: str(value) and repr(value).
#pragma once
#include "text/template/python_value.h"

namespace distsetup::jinja {

std::string python_str(const PyValue& value);  // what {{ value }} writes; fails where Python would print an address of memory
std::string python_repr(const PyValue& value);
std::string float_text(double value);  // 1.0, 1e-05, inf

}  // namespace distsetup::jinja
