// Filters that answer with a text. What is no text is turned into one first, as {{ }} would write it.
#pragma once
#include "text/template/filters.h"

namespace distsetup::jinja {

std::vector<NamedFilter> text_filters();

}  // namespace distsetup::jinja
