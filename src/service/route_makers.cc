#include "service/route_makers.h"

#include "service/request_schemas.h"

namespace distsetup {

ServiceRoute new_route(const std::string& method, const std::string& path, const std::string& operation, const std::string& about) {
  ServiceRoute out;
  out.method = method;
  out.path = path;
  out.operation = operation;
  out.about = about;
  return out;
}

RouteParameter path_id(const std::string& name, const std::string& about) { return {name, "path", about, schema_named("Id"), true}; }

RouteParameter query_id(const std::string& name, const std::string& about) {
  return {name, "query", about, schema_named("Id"), false};
}

RouteParameter query_integer(const std::string& name, const std::string& about, int64_t least, int64_t most) {
  return {name, "query", about, {{"type", "integer"}, {"minimum", least}, {"maximum", most}}, false};
}

RouteAnswer json_result(const std::string& schema, const std::string& about) { return {200, about, schema, "application/json"}; }

RouteAnswer problem_answer(int status, const std::string& about) { return {status, about, "Problem", "application/json"}; }

ServiceRoute route_alias(ServiceRoute route, const std::string& path, const std::string& operation) {
  route.path = path;
  route.operation = operation;
  return route;
}

}  // namespace distsetup
