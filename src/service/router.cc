#include "service/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/names.h"
#include "base/text.h"
#include "service/access.h"
#include "service/body_schema.h"
#include "service/front.h"
#include "service/request_schemas.h"

namespace distsetup {
namespace {

bool match_segments(const std::string& pattern, const std::vector<std::string>& segments,
                    std::map<std::string, std::string, std::less<>>& values) {
  const std::vector<std::string> wanted = split(pattern, '/');
  if (wanted.size() != segments.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].starts_with("{")) {
      if (segments[i].empty()) return false;
      values[wanted[i].substr(1, wanted[i].size() - 2)] = segments[i];
    } else if (wanted[i] != segments[i]) {
      return false;
    }
  }
  return true;
}

// Every parameter as its schema has it; those that no route knows are mistakes, too.
void check_parameters(const ServiceRoute& route, const HttpRequest& request, std::vector<BodyMistake>& out) {
  std::vector<std::string> known;
  for (const RouteParameter& one : route.parameters) {
    if (one.in == "query") known.push_back(one.name);
    std::vector<std::string> given;
    if (one.in == "path") given.push_back(request.path_values.find(one.name)->second);
    for (const auto& [name, text] : request.query) {
      if (one.in == "query" && name == one.name) given.push_back(text);
    }
    const std::string where = one.in + " " + one.name;
    if (given.empty() && one.is_required) out.push_back({where, "is missing", ""});
    if (given.size() > 1) out.push_back({where, "is there more than once", ""});
    if (given.size() == 1) check_body(one.schema, parameter_value(one.schema, given[0]), where, out);
  }
  for (const auto& [name, _] : request.query) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      out.push_back({"query " + name.substr(0, 64), "is no parameter of this route", known.empty() ? "" : suggest(name, known)});
  }
}

std::string media_type(const HttpRequest& request) {
  std::string type = request.header("content-type");
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  return lower(type);
}

// `answer` is set when it is refused.
Json checked_body(const ServiceRoute& route, const HttpRequest& request, std::optional<HttpAnswer>& answer) {
  if (route.body == BodyNeed::kNone || route.body_schema.empty()) return nullptr;
  if (request.body.empty() && route.body == BodyNeed::kOptional) return nullptr;
  if (!request.body.empty() && media_type(request) != route.body_type) {
    answer = refusal(415, fmt::format("the body's type is '{}', expected {}", media_type(request).substr(0, 100), route.body_type));
    return nullptr;
  }
  std::vector<BodyMistake> mistakes;
  Json body = read_body(schema_named(route.body_schema), request.body, mistakes);
  if (!mistakes.empty())
    answer = refusal(route.mistake_status, fmt::format("{} {}", mistakes[0].where, mistakes[0].message), mistakes);
  return body;
}

HttpAnswer route_request(Service& service, HttpRequest& request) {
  if (std::optional<HttpAnswer> refused = refuse_host(service.settings, request)) return *refused;
  if (std::optional<HttpAnswer> refused = refuse_other_page(request)) return *refused;
  RouteMatch match = match_route(route_table(), request.method == "HEAD" ? "GET" : request.method, request.path);
  if (match.route == nullptr || !match.route->needs_no_token) {
    if (std::optional<HttpAnswer> refused = refuse_stranger(service.settings, request)) return *refused;
  }
  if (match.route == nullptr) return refuse_route(match, request.method, request.path);
  const ServiceRoute& route = *match.route;
  request.path_values = std::move(match.values);
  std::vector<BodyMistake> mistakes;
  check_parameters(route, request, mistakes);
  if (!mistakes.empty()) return refusal(route.mistake_status, fmt::format("{} {}", mistakes[0].where, mistakes[0].message), mistakes);
  std::optional<HttpAnswer> refused;
  const Json body = checked_body(route, request, refused);
  if (refused) return *refused;
  if (service.settings.mode == ServiceMode::kFront && is_passed_on(request.path)) return pass_on(service, request);
  HttpAnswer answer = route.handler(service, request, body);
  if (answer.status == 422) answer.status = route.mistake_status;
  return answer;
}

}  // namespace

RouteMatch match_route(const std::vector<ServiceRoute>& routes, std::string_view method, std::string_view path) {
  RouteMatch match;
  const std::vector<std::string> segments = split(path, '/');
  for (const ServiceRoute& route : routes) {
    std::map<std::string, std::string, std::less<>> values;
    if (!match_segments(route.path, segments, values)) continue;
    if (route.method == method) return {&route, std::move(values), {}};
    match.allowed.push_back(route.method);
  }
  return match;
}

HttpAnswer refuse_route(const RouteMatch& match, const std::string& method, const std::string& path) {
  if (match.allowed.empty())
    return refusal(404, fmt::format("no route {} {}; /openapi.json lists them", method.substr(0, 20), path.substr(0, 200)));
  HttpAnswer answer = refusal(405, fmt::format("{} is no method of {}", method.substr(0, 20), path.substr(0, 200)));
  std::string allowed;
  for (const std::string& one : match.allowed) allowed += (allowed.empty() ? "" : ", ") + one;
  answer.headers.emplace_back("Allow", allowed);
  return answer;
}

HttpAnswer answer_request(Service& service, HttpRequest request) {
  ++service.counters.requests;
  HttpAnswer answer;
  try {
    answer = route_request(service, request);
  } catch (const std::exception& failure) {
    service.log->write(LogLevel::kError, "handler_failed", {{"path", request.path}, {"reason", failure.what()}});
    answer = refusal(500, "this is not your mistake: please report it with the request");
  }
  if (answer.status >= 500)
    ++service.counters.failed;
  else if (answer.status >= 400)
    ++service.counters.refused;
  service.log->write(
      LogLevel::kDebug, "request",
      {{"method", request.method}, {"path", request.path}, {"status", answer.status}, {"from", request.remote_address}});
  return answer;
}

}  // namespace distsetup
