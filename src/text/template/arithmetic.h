// + - * / // % ** and signs, as Python has them for numbers, texts and lists.
#pragma once
#include "text/template/python_value.h"

namespace distsetup::jinja {

PyValue arithmetic(std::string_view sign, const PyValue& left, const PyValue& right);
PyValue negative(const PyValue& value);
PyValue positive(const PyValue& value);
bool is_ordered(std::string_view sign, const PyValue& left, const PyValue& right);  // < <= > >=

}  // namespace distsetup::jinja
