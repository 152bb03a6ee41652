#include "service/page_routes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"
#include "base/names.h"
#include "service/body_schema.h"
#include "service/job_folder.h"
#include "service/job_json.h"
#include "service/job_log.h"
#include "service/model_lookup.h"
#include "service/page/files_page.h"
#include "service/page/html.h"
#include "service/page/job_page.h"
#include "service/page/json_values.h"
#include "service/page/plan_section.h"
#include "service/page/queue_page.h"
#include "service/page/submit_page.h"
#include "service/request_schemas.h"
#include "service/route_makers.h"
#include "service/router.h"

namespace distsetup {
namespace {

constexpr int64_t kJobsShown = 200, kLinesRead = 5000;
constexpr size_t kLinesShown = 400, kDatasetsOffered = 500;
constexpr char kHtml[] = "text/html; charset=utf-8", kForm[] = "application/x-www-form-urlencoded";

HttpAnswer page_answer(std::string html, int status = 200) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::move(html);
  answer.type = kHtml;
  answer.headers = {{"Content-Security-Policy",
                     "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
                     "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
                    {"X-Content-Type-Options", "nosniff"},
                    {"Referrer-Policy", "same-origin"},
                    {"Cache-Control", "no-store"}};
  return answer;
}

HttpAnswer go_to(const std::string& path) {
  HttpAnswer answer = page_answer("", 303);
  answer.headers.emplace_back("Location", path);
  return answer;
}

HttpAnswer nothing_there(const std::string& what) {
  return page_answer(notice_page({"Not found", "There is no " + what + ".", "The list of jobs may have what you look for.", false, ""},
                                 DISTSETUP_VERSION),
                     404);
}

// What another route answers, with the checks that it has: the page asks the API.
HttpAnswer ask_route(Service& service, const std::string& method, const std::string& path, const Json& body) {
  RouteMatch match = match_route(route_table(), method, path);
  HttpRequest request;
  request.method = method;
  request.path = path;
  request.path_values = match.values;
  if (!body.is_null() && !match.route->body_schema.empty()) {
    std::vector<BodyMistake> mistakes;
    const Json checked = read_body(schema_named(match.route->body_schema), compact_text(body), mistakes);
    if (!mistakes.empty()) return refusal(422, mistakes[0].message, mistakes);
    return match.route->handler(service, request, checked);
  }
  return match.route->handler(service, request, body);
}

LogView log_of(const JobFolder& folder, const std::string& rank) {
  LogView view;
  view.rank = rank.empty() || rank == "all" ? -1 : std::atoll(rank.c_str());  // checked by the parameter's schema
  const LogLines read = read_job_log(folder.file("log"), -1, kLinesRead);
  view.num_lines = read.num_lines;
  for (const Json& line : read.lines) {
    if (view.rank >= 0 && !(has_number_at(line, "/rank") && whole_at(line, "/rank") == view.rank)) continue;
    const bool is_marked = view.rank < 0 && has_number_at(line, "/rank");
    view.lines.push_back((is_marked ? fmt::format("[rank {}] ", whole_at(line, "/rank")) : "") + text_at(line, "/message"));
  }
  if (view.lines.size() > kLinesShown) view.lines.erase(view.lines.begin(), view.lines.end() - kLinesShown);
  if (view.rank >= 0 && read.num_lines <= kLinesRead)
    view.num_lines = static_cast<int64_t>(view.lines.size());  // no other line of it is left out
  return view;
}

HttpAnswer answer_queue_page(Service& service, const HttpRequest&, const Json&) {
  return page_answer(queue_page(queue_json(service, kJobsShown)));
}

HttpAnswer answer_job_page(Service& service, const HttpRequest& request, const Json&) {
  const std::string id = request.path_values.find("job_uuid")->second;
  const std::optional<JobRecord> job = service.jobs->find(id);
  if (!job) return nothing_there(fmt::format("job '{}'", id));
  const auto rank = std::find_if(request.query.begin(), request.query.end(), [](const auto& one) { return one.first == "rank"; });
  const JobFolder folder(service.settings.data_folder, id);
  return page_answer(job_page(job_json(service, *job, JobDetail::kWhole, StatusWords::kShort),
                              log_of(folder, rank == request.query.end() ? "" : rank->second), DISTSETUP_VERSION));
}

HttpAnswer answer_files_page(Service& service, const HttpRequest& request, const Json&) {
  const std::string id = request.path_values.find("job_uuid")->second, identifier = request.path_values.find("checkpoint")->second;
  const HttpAnswer files = ask_route(service, "GET", fmt::format("/v1/post-training/jobs/{}/checkpoints/{}", id, identifier), nullptr);
  if (files.status != 200) return nothing_there(fmt::format("checkpoint '{}' of job '{}'", identifier, id));
  return page_answer(files_page(id, identifier, Json::parse(files.body), DISTSETUP_VERSION));
}

HttpAnswer answer_cancel_form(Service& service, const HttpRequest& request, const Json&) {
  const std::string id = request.path_values.find("job_uuid")->second;
  if (!service.jobs->find(id)) return nothing_there(fmt::format("job '{}'", id));
  ask_route(service, "POST", "/v1/post-training/job/cancel", {{"job_uuid", id}});  // a job that has ended meanwhile: its page says so
  return go_to("/jobs/" + id);
}

SubmitView form_view(Service& service, const FormFields& fields) {
  SubmitView view;
  view.fields = fields;
  const Json queue = queue_json(service, 0);
  for (const Json& one : list_at(queue, "/datasets"))
    if (view.datasets.size() < kDatasetsOffered) view.datasets.push_back(text_at(one, "/dataset_id"));
  for (const Json& one : list_at(queue, "/models"))
    if (one.is_string()) view.models.push_back(one.get<std::string>());
  return view;
}

HttpAnswer answer_form(Service& service, const HttpRequest&, const Json&) {
  return page_answer(submit_page(form_view(service, {}), DISTSETUP_VERSION));
}

// A refusal as problems of the form, and the plan that it may carry.
void take_answer(const HttpAnswer& answer, SubmitView& view) {
  const Json body = json_from_text(answer.body);
  if (answer.status >= 400) {
    for (const Json& one : list_at(body, "/errors"))
      view.problems.push_back({text_at(one, "/where"), text_at(one, "/message"), text_at(one, "/help")});
    if (view.problems.empty()) view.problems.push_back({"", text_at(body, "/detail"), ""});
  }
  const Json plan = answer.status < 400 ? body : body.is_object() ? body.value("plan", Json()) : Json();
  if (!plan.is_object()) return;
  view.verdict = text_at(plan, "/verdict");
  view.plan_lines = plan_sentences(plan);
}

HttpAnswer answer_filled_form(Service& service, const HttpRequest& request, const Json&) {
  const FormFields fields = read_form(request.body);
  const Json training = request_of_form(fields);
  const std::string action(action_of_form(fields)), path = "/v1/post-training/" + action;
  SubmitView view = form_view(service, fields);
  std::vector<BodyMistake> mistakes;
  read_body(schema_named(match_route(route_table(), "POST", path).route->body_schema), compact_text(training), mistakes);
  for (const BodyMistake& one : mistakes) view.problems.push_back({one.where, one.message, one.help});
  const auto wanted = fields.find("action");
  if (mistakes.empty() && wanted != fields.end() && wanted->second == "submit") {
    const HttpAnswer answer = ask_route(service, "POST", path, training);
    if (answer.status == 200) return go_to("/jobs/" + text_at(training, "/job_uuid"));
    take_answer(answer, view);
  } else if (mistakes.empty()) {
    Json asked = {{"method", action == "preference-optimize" ? "dpo" : "sft"},
                  {"model", training["model"]},
                  {"training_config", training["training_config"]}};
    asked["training_config"]["data_config"].erase("data_format");
    if (training.contains("algorithm_config")) asked["algorithm_config"] = training["algorithm_config"];
    take_answer(ask_route(service, "POST", "/v1/plan", asked), view);
  }
  return page_answer(submit_page(view, DISTSETUP_VERSION), view.problems.empty() ? 200 : 422);
}

HttpAnswer answer_static(Service&, const HttpRequest& request, const Json&) {
  constexpr std::pair<std::string_view, const char*> kFiles[] = {
      {"page.css", "text/css; charset=utf-8"}, {"page.js", "text/javascript; charset=utf-8"}, {"page.svg", "image/svg+xml"}};
  const std::string name = request.path_values.find("name")->second;
  for (const auto& [known, type] : kFiles) {
    if (name != known) continue;
    HttpAnswer answer;
    answer.body = std::string(page_file(name));
    answer.type = type;
    answer.headers = {{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "max-age=300"}};
    return answer;
  }
  return refusal(404, "no such file");
}

ServiceRoute html_route(const std::string& method, const std::string& path, const std::string& operation, const std::string& about,
                        RouteHandler handler) {
  ServiceRoute route = new_route(method, path, operation, about);
  route.answers = {{200, "HTML", "", "text/html"}};
  route.handler = handler;
  return route;
}

}  // namespace

std::vector<ServiceRoute> page_routes() {
  const RouteAnswer none = {404, "there is no such thing", "", "text/html"}, elsewhere = {303, "go there", "", "text/html"};
  std::vector<ServiceRoute> out;
  out.push_back(html_route("GET", "/", "page", "the page: the queue", answer_queue_page));
  ServiceRoute job = html_route("GET", "/jobs/{job_uuid}", "job_page", "the page: a job", answer_job_page);
  job.parameters = {
      path_id("job_uuid", "the job"),
      {"rank", "query", "whose lines of the log are shown; all", {{"type", "string"}, {"pattern", "^(all|[0-9]{1,6})$"}}, false}};
  job.answers.push_back(none);
  out.push_back(std::move(job));
  ServiceRoute files = html_route("GET", "/jobs/{job_uuid}/checkpoints/{checkpoint}", "checkpoint_page",
                                  "the page: files of a checkpoint", answer_files_page);
  files.parameters = {path_id("job_uuid", "the job"), path_id("checkpoint", "the checkpoint")};
  files.answers.push_back(none);
  out.push_back(std::move(files));
  ServiceRoute cancel = html_route("POST", "/jobs/{job_uuid}/cancel", "cancel_form", "the page: cancels a job", answer_cancel_form);
  cancel.parameters = {path_id("job_uuid", "the job")};
  cancel.answers = {elsewhere, none};
  out.push_back(std::move(cancel));
  out.push_back(html_route("GET", "/submit", "form", "the page: a form for a job", answer_form));
  ServiceRoute filled =
      html_route("POST", "/submit", "filled_form", "the page: plans or submits what the form says", answer_filled_form);
  filled.body = BodyNeed::kOptional;
  filled.body_type = kForm;
  filled.answers.push_back(elsewhere);
  filled.answers.push_back({422, "HTML that says why not", "", "text/html"});
  out.push_back(std::move(filled));
  ServiceRoute file = new_route("GET", "/static/{name}", "page_file", "a file of the page");
  file.parameters = {{"name", "path", "its name", {{"type", "string"}, {"maxLength", 100}}, true}};
  file.answers = {{200, "the file", "", "text/plain"}, problem_answer(404, "there is no such file")};
  file.handler = answer_static;
  out.push_back(std::move(file));
  return out;
}

}  // namespace distsetup
