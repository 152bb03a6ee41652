// From a request to its answer: who asks, which route, do parameters and body fit, the handler.
#pragma once
#include <string_view>

#include "service/route_table.h"

namespace distsetup {

struct RouteMatch {
  const ServiceRoute* route = nullptr;
  std::map<std::string, std::string, std::less<>> values;  // of {name}
  std::vector<std::string> allowed;                        // methods of this path, when none of its routes has this one
};

RouteMatch match_route(const std::vector<ServiceRoute>& routes, std::string_view method, std::string_view path);

// 405 with the methods that the path has, 404 where it is no path of ours.
HttpAnswer refuse_route(const RouteMatch& match, const std::string& method, const std::string& path);

// Never throws; a failure of ours is a 500 with its event in the log.
HttpAnswer answer_request(Service& service, HttpRequest request);

}  // namespace distsetup
