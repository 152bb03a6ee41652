// The page and its files; what they look like is page/'s.
#pragma once
#include <vector>

#include "service/route_table.h"

namespace distsetup {

std::vector<ServiceRoute> page_routes();

}  // namespace distsetup
