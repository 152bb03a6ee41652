// ==, <, `in` as Python has them.
#pragma once
#include "text/template/python_value.h"

namespace distsetup::jinja {

bool equal(const PyValue& a, const PyValue& b);
// a < b; fails for types that have no order between them.
bool less(const PyValue& a, const PyValue& b);
// `item in container`: a part of a text, a key of a dict, an item of anything that can be walked.
bool contains(const PyValue& container, const PyValue& item);
// Are they one object? True, False, None and undefined are; so are whole numbers that Python keeps (-5 … 256).
bool is_same(const PyValue& a, const PyValue& b);

}  // namespace distsetup::jinja
