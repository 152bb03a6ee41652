// Data sets: registered with their rows, from a file, or uploaded; listed, read, removed.
#pragma once
#include <vector>

#include "service/route_table.h"

namespace distsetup {

std::vector<ServiceRoute> dataset_routes();

}  // namespace distsetup
