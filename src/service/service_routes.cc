#include "service/service_routes.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "base/clock.h"
#include "service/http_message.h"
#include "service/job_folder.h"
#include "service/job_json.h"
#include "service/job_queue.h"
#include "service/metrics_text.h"
#include "service/model_lookup.h"
#include "service/openapi.h"
#include "service/route_makers.h"
#include "service/router.h"

namespace distsetup {
namespace {

constexpr int64_t kJobsOfQueue = 1000;

bool is_healthy(const Service& service) { return !service.is_stopping && service.is_remote_healthy; }

HttpAnswer answer_health(Service& service, const HttpRequest&, const Json&) {
  return json_answer(health_json(service), is_healthy(service) ? 200 : 503);
}

// The same for Llama Stack's clients, whose health is "OK".
HttpAnswer answer_health_v1(Service& service, const HttpRequest&, const Json&) {
  Json health = health_json(service);
  if (is_healthy(service)) health["status"] = "OK";
  return json_answer(health, is_healthy(service) ? 200 : 503);
}

HttpAnswer answer_openapi(Service&, const HttpRequest&, const Json&) {
  static const std::string text = compact_text(openapi_document());
  HttpAnswer answer;
  answer.body = text;
  return answer;
}

HttpAnswer answer_version(Service&, const HttpRequest&, const Json&) { return json_answer({{"version", DISTSETUP_VERSION}}); }

HttpAnswer answer_metrics(Service& service, const HttpRequest&, const Json&) {
  HttpAnswer answer;
  answer.body = metrics_text(service);
  answer.type = kOpenMetricsType;
  return answer;
}

HttpAnswer answer_queue(Service& service, const HttpRequest&, const Json&) { return json_answer(queue_json(service, kJobsOfQueue)); }

Json providers_json(const Service& service) {
  const Json health = {{"status", service.is_stopping ? "Error" : "OK"}};
  const Json type = health_json(service)["provider_type"];
  Json out = Json::array();
  out.push_back({{"api", "post_training"},
                 {"provider_id", "distsetup"},
                 {"provider_type", type},
                 {"config", Json::object()},
                 {"health", health}});
  out.push_back({{"api", "datasetio"},
                 {"provider_id", "distsetup-data"},
                 {"provider_type", "inline::distsetup"},
                 {"config", Json::object()},
                 {"health", health}});
  return out;
}

HttpAnswer answer_providers(Service& service, const HttpRequest&, const Json&) {
  return json_answer({{"data", providers_json(service)}});
}

HttpAnswer answer_provider(Service& service, const HttpRequest& request, const Json&) {
  const std::string id = request.path_values.find("provider_id")->second;
  for (const Json& one : providers_json(service)) {
    if (one["provider_id"] == id) return json_answer(one);
  }
  return refusal(404, fmt::format("no provider '{}'", id));
}

// As Llama Stack names it, and with the keys of OpenAI's list of models, which its later clients read.
Json model_json(const Service& service, const FoundModel& one) {
  const Json known = {{"has_weights", one.has_weights}, {"has_tokenizer", one.has_tokenizer}};
  return {{"identifier", one.name},
          {"provider_resource_id", one.name},
          {"provider_id", "distsetup"},
          {"type", "model"},
          {"model_type", "llm"},
          {"metadata", known},
          {"id", one.name},
          {"object", "model"},
          {"created", service.started_ms / 1000},
          {"owned_by", "distsetup"},
          {"custom_metadata", known}};
}

HttpAnswer answer_models(Service& service, const HttpRequest&, const Json&) {
  Json data = Json::array();
  for (const FoundModel& one : served_models(service.settings)) data.push_back(model_json(service, one));
  return json_answer({{"data", data}});
}

HttpAnswer answer_model(Service& service, const HttpRequest& request, const Json&) {
  std::string name;
  for (const char* part : {"first", "second"}) {
    const auto found = request.path_values.find(part);
    if (found != request.path_values.end()) name += (name.empty() ? "" : "/") + found->second;
  }
  const std::optional<FoundModel> model = find_served_model(service.settings, name);
  return model ? json_answer(model_json(service, *model)) : refusal(404, fmt::format("no model '{}'", name));
}

HttpAnswer answer_routes(Service&, const HttpRequest&, const Json&) {
  Json data = Json::array();
  for (const ServiceRoute& one : route_table())
    data.push_back({{"method", one.method}, {"route", one.path}, {"provider_types", Json::array()}});
  return json_answer({{"data", data}});
}

// An agent asks for its part of the job that runs on all nodes.
HttpAnswer answer_node(Service& service, const HttpRequest& request, const Json&) {
  const int64_t rank = std::strtoll(request.path_values.find("rank")->second.c_str(), nullptr, 10);
  const ServiceSettings& settings = service.settings;
  if (settings.launcher != LauncherKind::kNodes || rank >= settings.nodes)
    return refusal(409, fmt::format("this service has no node {}: it has {} started by agents", rank,
                                    settings.launcher == LauncherKind::kNodes ? settings.nodes : 1));
  std::string word;
  for (const auto& [name, text] : request.query) word = name == "word" ? text : word;
  if (word != service.nodes.word())
    return refusal(409,
                   fmt::format("node {} does not see this service's data folder, '{}': nodes share it. What it has read below its "
                               "own --data is {}",
                               rank, settings.data_folder, word.empty() ? "nothing" : "of another service"));
  service.nodes.saw(rank, now_s());
  for (const JobRecord& job : service.jobs->in_states({JobState::kInProgress})) {
    const JobFolder folder(settings.data_folder, job.id);
    if (job.is_cancel_asked || keeper_phase(folder, job.attempt) != "launch" || keeper_result(folder, job.attempt)) continue;
    const Json meeting = read_json(folder.attempt(job.attempt) + "/rendezvous.json");
    if (!meeting.is_object()) continue;
    return json_answer({{"job", {{"job_uuid", job.id}, {"attempt", job.attempt}, {"master_port", meeting.value("master_port", 0)}}}});
  }
  return json_answer({{"job", nullptr}});
}

}  // namespace

Json health_json(const Service& service) {
  const ServiceSettings& settings = service.settings;
  Json backend = settings.device == "cuda" ? "nccl" : "gloo";
  if (settings.mode == ServiceMode::kInline) backend = nullptr;
  return {{"status", service.is_stopping         ? "stopping"
                     : service.is_remote_healthy ? "healthy"
                                                 : "remote service not responding"},
          {"provider_type", settings.mode == ServiceMode::kInline ? "inline::trl" : "remote::trl_fsdp"},
          {"distributed_backend", backend},
          {"world_size", settings.world()},
          {"device", settings.device},
          {"version", DISTSETUP_VERSION}};
}

std::vector<ServiceRoute> service_routes() {
  std::vector<ServiceRoute> out;
  ServiceRoute health = new_route("GET", "/health", "health", "whether the service answers, and on what it trains");
  health.answers = {json_result("Health", "it does"),
                    {503, "the service is stopping, or the one that a front passes on to does not answer", "Health"}};
  health.handler = answer_health;
  health.needs_no_token = true;
  out.push_back(health);
  out.push_back(route_alias(health, "/v1/health", "health_v1"));
  out.back().handler = answer_health_v1;
  struct PlainRow {
    const char *path, *operation, *about, *schema;
    RouteHandler handler;
  };
  const std::array<PlainRow, 6> rows = {
      {{"/openapi.json", "openapi", "this document", "AnyObject", answer_openapi},
       {"/v1/version", "version", "the version of the service", "AnyObject", answer_version},
       {"/v1/queue", "queue", "all jobs in one line each, and what there is to train with", "AnyObject", answer_queue},
       {"/v1/providers", "list_providers", "what the service provides", "DataList", answer_providers},
       {"/v1/models", "list_models", "models that can be trained", "DataList", answer_models},
       {"/v1/inspect/routes", "list_routes", "every route", "DataList", answer_routes}}};
  for (const PlainRow& row : rows) {
    ServiceRoute one = new_route("GET", row.path, row.operation, row.about);
    one.answers = {json_result(row.schema, row.about)};
    one.handler = row.handler;
    out.push_back(std::move(one));
  }
  ServiceRoute metrics = new_route("GET", "/metrics", "metrics", "numbers for Prometheus, as OpenMetrics");
  metrics.answers = {{200, "OpenMetrics", "", "application/openmetrics-text"}};
  metrics.handler = answer_metrics;
  out.push_back(std::move(metrics));
  ServiceRoute node = new_route("GET", "/v1/nodes/{rank}", "node_work", "what an agent on another node has to do");
  node.parameters = {{"rank", "path", "its node rank", {{"type", "integer"}, {"minimum", 1}, {"maximum", 9999}}, true},
                     {"word", "query", "what the file node_word below its data folder says", {{"type", "string"}, {"maxLength", 64}}}};
  node.answers = {json_result("AnyObject", "a job, or null"),
                  problem_answer(409, "this service has no such node, or the node does not see its data folder")};
  node.handler = answer_node;
  out.push_back(std::move(node));
  ServiceRoute provider = new_route("GET", "/v1/providers/{provider_id}", "get_provider", "one of the providers");
  provider.parameters = {path_id("provider_id", "the provider")};
  provider.answers = {json_result("AnyObject", "the provider"), problem_answer(404, "there is no such provider")};
  provider.handler = answer_provider;
  out.push_back(std::move(provider));
  ServiceRoute model = new_route("GET", "/v1/models/{first}", "get_model", "a model");
  model.parameters = {path_id("first", "its name")};
  model.answers = {json_result("AnyObject", "the model"), problem_answer(404, "there is no such model")};
  model.handler = answer_model;
  out.push_back(model);
  ServiceRoute named = route_alias(model, "/v1/models/{first}/{second}", "get_model_of");
  named.parameters.push_back(path_id("second", "its name below that of its publisher"));
  out.push_back(std::move(named));
  return out;
}

}  // namespace distsetup
