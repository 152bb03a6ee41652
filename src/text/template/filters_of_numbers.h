// Filters that answer with a number, a truth or one value for another.
#pragma once
#include "text/template/filters.h"

namespace distsetup::jinja {

std::vector<NamedFilter> number_filters();

}  // namespace distsetup::jinja
