// Jobs that are there: list, status, artifacts, cancel, logs, files of checkpoints.
#pragma once
#include <vector>

#include "service/route_table.h"

namespace distsetup {

std::vector<ServiceRoute> job_routes();

}  // namespace distsetup
