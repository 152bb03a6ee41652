#include "service/service_routes.h"

#include "service/http_message.h"
#include "service/openapi.h"
#include "service/route_makers.h"
#include "service/route_table.h"

namespace distsetup {
namespace {

HttpAnswer answer_health(Service& service, const HttpRequest&, const Json&) {
  return json_answer(health_json(service), service.is_stopping ? 503 : 200);
}

HttpAnswer answer_openapi(Service&, const HttpRequest&, const Json&) {
  static const std::string text = compact_text(openapi_document());
  HttpAnswer answer;
  answer.body = text;
  return answer;
}

HttpAnswer answer_version(Service&, const HttpRequest&, const Json&) { return json_answer({{"version", DISTSETUP_VERSION}}); }

}  // namespace

Json health_json(const Service& service) {
  const ServiceSettings& settings = service.settings;
  Json backend = settings.device == "cuda" ? "nccl" : "gloo";
  if (settings.mode == ServiceMode::kInline) backend = nullptr;
  return {{"status", service.is_stopping ? "stopping" : "healthy"},
          {"provider_type", settings.mode == ServiceMode::kInline ? "inline::trl" : "remote::trl_fsdp"},
          {"distributed_backend", backend},
          {"world_size", settings.world()},
          {"device", settings.device},
          {"version", DISTSETUP_VERSION}};
}

std::vector<ServiceRoute> service_routes() {
  std::vector<ServiceRoute> out;
  ServiceRoute health = new_route("GET", "/health", "health", "whether the service answers, and on what it trains");
  health.answers = {json_result("Health", "it does"), {503, "the service is stopping", "Health"}};
  health.handler = answer_health;
  health.needs_no_token = true;
  out.push_back(health);
  out.push_back(route_alias(health, "/v1/health", "health_v1"));
  ServiceRoute document = new_route("GET", "/openapi.json", "openapi", "this document");
  document.answers = {json_result("AnyObject", "OpenAPI 3.1")};
  document.handler = answer_openapi;
  out.push_back(document);
  ServiceRoute version = new_route("GET", "/v1/version", "version", "the version of the service");
  version.answers = {json_result("AnyObject", "the version")};
  version.handler = answer_version;
  out.push_back(version);
  return out;
}

}  // namespace distsetup
