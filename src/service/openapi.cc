#include "service/openapi.h"

#include <algorithm>

#include "base/json.h"
#include "service/request_schemas.h"
#include "service/route_table.h"

namespace distsetup {
namespace {

Json described_answer(const RouteAnswer& one) {
  Json out = {{"description", one.about}};
  if (one.type == "application/json")
    out["content"][one.type]["schema"] = one.schema.empty() ? Json::object() : schema_named(one.schema);
  else
    out["content"][one.type]["schema"] = {{"type", "string"}};
  return out;
}

Json described_route(const ServiceRoute& route) {
  Json out = {{"operationId", route.operation}, {"summary", route.about}};
  for (const RouteParameter& one : route.parameters) {
    out["parameters"].push_back(
        {{"name", one.name}, {"in", one.in}, {"required", one.is_required}, {"description", one.about}, {"schema", one.schema}});
  }
  if (route.body != BodyNeed::kNone) {
    Json& body = out["requestBody"];
    body["required"] = route.body == BodyNeed::kRequired;
    body["content"][route.body_type]["schema"] =
        route.body_schema.empty() ? Json{{"type", "string"}} : schema_named(route.body_schema);
  }
  for (const RouteAnswer& one : route.answers) out["responses"][std::to_string(one.status)] = described_answer(one);
  for (const RouteAnswer& one : common_answers(route)) out["responses"][std::to_string(one.status)] = described_answer(one);
  if (route.needs_no_token) out["security"] = Json::array();
  return out;
}

}  // namespace

Json openapi_document() {
  Json out = {{"openapi", "3.1.0"},
              {"info",
               {{"title", "distsetup service"},
                {"version", DISTSETUP_VERSION},
                {"description", "Post-training jobs that are planned before they train."}}},
              {"servers", Json::array({{{"url", "/"}}})},
              {"components", {{"schemas", component_schemas()}}}};
  out["components"]["securitySchemes"]["token"] = {{"type", "http"}, {"scheme", "bearer"}};
  out["security"] = Json::array({Json::object(), {{"token", Json::array()}}});
  for (const ServiceRoute& route : route_table()) {
    std::string method = route.method;
    std::transform(method.begin(), method.end(), method.begin(), [](char c) { return static_cast<char>(c | 0x20); });
    out["paths"][route.path][method] = described_route(route);
  }
  return out;
}

}  // namespace distsetup
