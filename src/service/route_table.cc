#include "service/route_table.h"

#include <algorithm>

#include "service/dataset_routes.h"
#include "service/job_routes.h"
#include "service/page_routes.h"
#include "service/service_routes.h"
#include "service/training_routes.h"

namespace distsetup {

const std::vector<ServiceRoute>& route_table() {
  static const std::vector<ServiceRoute> all = [] {
    std::vector<ServiceRoute> routes;
    for (auto* part : {service_routes, training_routes, job_routes, dataset_routes, page_routes}) {
      for (ServiceRoute& one : part()) routes.push_back(std::move(one));
    }
    return routes;
  }();
  return all;
}

std::vector<RouteAnswer> common_answers(const ServiceRoute& route) {
  std::vector<RouteAnswer> out;
  const auto add = [&out](int status, const char* about) { out.push_back({status, about, "Problem", "application/json"}); };
  add(400, "the request cannot be read");
  if (!route.needs_no_token) add(401, "a token is needed, and none of the service's was given");
  add(403, "the Host header names another machine than this one");
  add(429, "too many requests of this client; Retry-After says how long to wait");
  add(503, "the service is stopping, or its disk is full");
  if (!route.parameters.empty() || route.body != BodyNeed::kNone) add(route.mistake_status, "a parameter or the body does not fit");
  if (route.body != BodyNeed::kNone) {
    add(413, "the body is larger than the service takes");
    add(415, "the body has another content type");
  }
  const auto is_own = [&route](const RouteAnswer& one) {
    return std::any_of(route.answers.begin(), route.answers.end(),
                       [&one](const RouteAnswer& own) { return own.status == one.status; });
  };
  std::erase_if(out, is_own);
  return out;
}

}  // namespace distsetup
