// What the service says of itself: health, metrics, its routes, providers, models, the queue.
#pragma once
#include <vector>

#include "service/route_table.h"

namespace distsetup {

std::vector<ServiceRoute> service_routes();
Json health_json(const Service& service);

}  // namespace distsetup
