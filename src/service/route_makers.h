// Pieces that many rows of the route table have.
#pragma once
#include <string>
#include <vector>

#include "service/route_table.h"

namespace distsetup {

ServiceRoute new_route(const std::string& method, const std::string& path, const std::string& operation, const std::string& about);
RouteParameter path_id(const std::string& name, const std::string& about);
RouteParameter query_id(const std::string& name, const std::string& about);  // optional
RouteParameter query_integer(const std::string& name, const std::string& about, int64_t least, int64_t most);
RouteAnswer json_result(const std::string& schema, const std::string& about);
RouteAnswer problem_answer(int status, const std::string& about);
// The route below another path, under another operation's name: an alias.
ServiceRoute route_alias(ServiceRoute route, const std::string& path, const std::string& operation);

}  // namespace distsetup
