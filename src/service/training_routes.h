// Jobs that begin: preference-optimize, supervised-fine-tune, and a plan without a job.
#pragma once
#include <vector>

#include "service/route_table.h"

namespace distsetup {

std::vector<ServiceRoute> training_routes();

}  // namespace distsetup
