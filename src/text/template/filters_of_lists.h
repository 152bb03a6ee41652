// Filters that pick, order and map items. Where jinja2 gives a generator, so do they: it can be walked once.
#pragma once
#include "text/template/filters.h"

namespace distsetup::jinja {

std::vector<NamedFilter> list_filters();

}  // namespace distsetup::jinja
