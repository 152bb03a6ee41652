// "%s of %d" % (a, b): Python's formatting of texts, for the kinds that templates use: s r d i f e g x o and %%.
#pragma once
#include "text/template/python_value.h"

namespace distsetup::jinja {

PyValue percent_format(const PyValue& format, const PyValue& values);

}  // namespace distsetup::jinja
