// Every route once: what /openapi.json describes is what the router matches and checks before a handler is called.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "service/http_message.h"
#include "service/service.h"

namespace distsetup {

// Called when parameters and body are what the route says. `body`: null where there is none.
using RouteHandler = HttpAnswer (*)(Service& service, const HttpRequest& request, const Json& body);

struct RouteParameter {
  std::string name;
  std::string in;  // "path", "query"
  std::string about;
  Json schema;
  bool is_required = false;
};

struct RouteAnswer {
  int status = 200;
  std::string about;
  std::string schema;  // name of a component; "": no JSON
  std::string type = "application/json";
};

enum class BodyNeed { kNone, kOptional, kRequired };

struct ServiceRoute {
  std::string method, path;  // "/v1/datasets/{dataset_id}"
  std::string operation;     // unique
  std::string about;
  std::vector<RouteParameter> parameters;
  BodyNeed body = BodyNeed::kNone;
  std::string body_schema;  // name of a component; "": bytes as they are
  std::string body_type = "application/json";
  std::vector<RouteAnswer> answers;
  RouteHandler handler = nullptr;
  int mistake_status = 422;  // what a body or parameter that does not fit is answered with
  bool needs_no_token = false;
};

const std::vector<ServiceRoute>& route_table();

// Statuses that every route may answer with, beside its own.
std::vector<RouteAnswer> common_answers(const ServiceRoute& route);

}  // namespace distsetup
