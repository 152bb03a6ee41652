#include "service/page_routes.h"

#include <fmt/format.h>

#include "service/job_json.h"
#include "service/page/page.h"
#include "service/route_makers.h"

namespace distsetup {
namespace {

constexpr int64_t kJobsShown = 200;

HttpAnswer page_answer(std::string html, int status = 200) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = std::move(html);
  answer.type = "text/html; charset=utf-8";
  answer.headers = {{"Content-Security-Policy",
                     "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
                     "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
                    {"X-Content-Type-Options", "nosniff"},
                    {"Referrer-Policy", "no-referrer"},
                    {"Cache-Control", "no-store"}};
  return answer;
}

HttpAnswer answer_queue_page(Service& service, const HttpRequest&, const Json&) {
  return page_answer(render_page(PageKind::kQueue, queue_json(service, kJobsShown)));
}

HttpAnswer answer_job_page(Service& service, const HttpRequest& request, const Json&) {
  const std::string id = request.path_values.find("job_uuid")->second;
  const std::optional<JobRecord> job = service.jobs->find(id);
  if (!job) return refusal(404, fmt::format("no job '{}'", id));
  return page_answer(render_page(PageKind::kJob, job_json(service, *job, JobDetail::kWhole)));
}

HttpAnswer answer_static(Service&, const HttpRequest& request, const Json&) {
  const std::optional<StaticFile> file = static_file(request.path_values.find("name")->second);
  if (!file) return refusal(404, "no such file");
  HttpAnswer answer;
  answer.body = file->text;
  answer.type = file->type;
  answer.headers = {{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "max-age=3600"}};
  return answer;
}

}  // namespace

std::vector<ServiceRoute> page_routes() {
  std::vector<ServiceRoute> out;
  ServiceRoute queue = new_route("GET", "/", "page", "the page: the queue");
  queue.answers = {{200, "HTML", "", "text/html"}};
  queue.handler = answer_queue_page;
  ServiceRoute job = new_route("GET", "/jobs/{job_uuid}", "job_page", "the page: a job");
  job.parameters = {path_id("job_uuid", "the job")};
  job.answers = {{200, "HTML", "", "text/html"}, problem_answer(404, "there is no such job")};
  job.handler = answer_job_page;
  ServiceRoute files = new_route("GET", "/static/{name}", "page_file", "a file of the page");
  files.parameters = {{"name", "path", "its name", {{"type", "string"}, {"maxLength", 100}}, true}};
  files.answers = {{200, "the file", "", "text/plain"}, problem_answer(404, "there is no such file")};
  files.handler = answer_static;
  for (ServiceRoute* one : {&queue, &job, &files}) out.push_back(std::move(*one));
  return out;
}

}  // namespace distsetup
