#include "service/job_routes.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "service/job_json.h"
#include "service/job_log.h"
#include "service/job_queue.h"
#include "service/request_schemas.h"
#include "service/route_makers.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMostLines = 5000, kUsualLines = 500, kShortLines = 50, kMostStreams = 16;
constexpr double kStream_s = 15, kStreamTurn_s = 0.25;
constexpr size_t kPieceBytes = size_t{1} << 20;

bool is_short(const HttpRequest& request) { return !request.path.starts_with("/v1"); }

// The id that a request names in its path, its query or its body; a refusal where none or several do.
struct AskedJob {
  std::optional<JobRecord> job;
  HttpAnswer refused;
};

AskedJob asked_job(Service& service, const HttpRequest& request, const Json& body) {
  const int mistake = is_short(request) ? 400 : 422;
  std::vector<std::string> ids;
  if (const auto found = request.path_values.find("job_uuid"); found != request.path_values.end()) ids.push_back(found->second);
  for (const auto& [name, value] : request.query) {
    if (name == "job_uuid") ids.push_back(value);
  }
  if (body.is_object() && body.contains("job_uuid")) ids.push_back(body["job_uuid"].get<std::string>());
  AskedJob out;
  if (ids.empty()) {
    out.refused = refusal(mistake, "job_uuid is missing", {{"job_uuid", "is missing", "give it in the query, or in the body"}});
    return out;
  }
  for (const std::string& one : ids) {
    if (one != ids[0]) {
      out.refused = refusal(mistake, fmt::format("job_uuid is '{}' and '{}'", ids[0], one));
      return out;
    }
  }
  out.job = service.jobs->find(ids[0]);
  if (!out.job) out.refused = refusal(404, fmt::format("no job '{}'", ids[0]));
  return out;
}

HttpAnswer answer_list(Service& service, const HttpRequest& request, const Json&) {
  Json data = Json::array();
  for (const JobRecord& job : service.jobs->all()) {
    const bool is_shown_queued = is_short(request) || job.state != JobState::kQueued;
    data.push_back({{"job_uuid", job.id}, {"status", job_state_name(is_shown_queued ? job.state : JobState::kScheduled)}});
  }
  return json_answer({{"data", data}});
}

HttpAnswer answer_status(Service& service, const HttpRequest& request, const Json& body) {
  const AskedJob asked = asked_job(service, request, body);
  if (!asked.job) return asked.refused;
  return json_answer(
      job_json(service, *asked.job, JobDetail::kWhole, is_short(request) ? StatusWords::kShort : StatusWords::kLlamaStack));
}

HttpAnswer answer_artifacts(Service& service, const HttpRequest& request, const Json& body) {
  const AskedJob asked = asked_job(service, request, body);
  if (!asked.job) return asked.refused;
  return json_answer({{"job_uuid", asked.job->id}, {"checkpoints", checkpoints_json(service, *asked.job)}});
}

HttpAnswer answer_cancel(Service& service, const HttpRequest& request, const Json& body) {
  const AskedJob asked = asked_job(service, request, body);
  if (!asked.job) return asked.refused;
  if (is_final(asked.job->state) || !service.jobs->ask_to_cancel(asked.job->id)) {
    const std::optional<JobRecord> now = service.jobs->find(asked.job->id);
    const std::string_view state = job_state_name(now ? now->state : asked.job->state);
    return refusal(is_short(request) ? 400 : 409, fmt::format("job '{}' has ended: {}", asked.job->id, state));
  }
  service.queue->notify();
  service.log->write(LogLevel::kInfo, "cancel_asked", {{"job_uuid", asked.job->id}});
  return json_answer(
      {{"message", fmt::format("job '{}' is being cancelled", asked.job->id)}, {"status", "cancelled"}, {"job_uuid", asked.job->id}});
}

int64_t number_of(const HttpRequest& request, const std::string& name, int64_t absent) {
  for (const auto& [key, value] : request.query) {
    int64_t number = absent;
    if (key == name) {
      std::from_chars(value.data(), value.data() + value.size(), number);
      return number;
    }
  }
  return absent;
}

bool is_given(const HttpRequest& request, const std::string& name) {
  for (const auto& [key, _] : request.query) {
    if (key == name) return true;
  }
  return false;
}

HttpAnswer answer_logs(Service& service, const HttpRequest& request, const Json& body) {
  const AskedJob asked = asked_job(service, request, body);
  if (!asked.job) return asked.refused;
  const std::string path = JobFolder(service.settings.data_folder, asked.job->id).file("log");
  const bool is_tail = is_given(request, "tail") || (is_short(request) && !is_given(request, "after"));
  const int64_t limit = is_tail ? number_of(request, "tail", kShortLines) : number_of(request, "limit", kUsualLines);
  const LogLines lines = read_job_log(path, is_tail ? -1 : number_of(request, "after", 0), limit);
  return json_answer({{"job_uuid", asked.job->id},
                      {"status", job_state_name(asked.job->state)},
                      {"logs", lines.lines},
                      {"next", lines.next},
                      {"total_lines", lines.num_lines}});
}

// Counts an open stream as long as it lives.
struct OpenStream {
  Service& service;
  explicit OpenStream(Service& s) : service(s) { ++service.counters.streams; }
  ~OpenStream() { --service.counters.streams; }
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;
};

HttpAnswer answer_stream(Service& service, const HttpRequest& request, const Json& body) {
  const AskedJob asked = asked_job(service, request, body);
  if (!asked.job) return asked.refused;
  auto open = std::make_shared<OpenStream>(service);
  if (service.counters.streams > kMostStreams) {
    HttpAnswer answer = refusal(429, fmt::format("{} event streams are open already", kMostStreams));
    answer.headers.emplace_back("Retry-After", "5");
    return answer;
  }
  int64_t after = number_of(request, "after", 0);
  const std::string last = request.header("last-event-id");
  std::from_chars(last.data(), last.data() + last.size(), after);
  HttpAnswer answer;
  answer.type = "text/event-stream";
  answer.headers.emplace_back("Cache-Control", "no-store");
  const std::string path = JobFolder(service.settings.data_folder, asked.job->id).file("log");
  const double until_s = now_s() + kStream_s;
  answer.next_piece = [&service, open, path, until_s, id = asked.job->id, after, is_first = true](std::string& piece) mutable {
    if (std::exchange(is_first, false)) piece = "retry: 1000\n\n";
    const std::optional<JobRecord> job = service.jobs->find(id);  // before the lines: what ended has written them all
    const LogLines lines = read_job_log(path, std::max<int64_t>(0, after), kUsualLines);
    for (const Json& line : lines.lines) piece += fmt::format("id: {}\nevent: line\ndata: {}\n\n", ++after, compact_text(line));
    const bool has_more = after < lines.num_lines;
    if (!job || (is_final(job->state) && !has_more)) {
      piece += fmt::format("event: end\ndata: {}\n\n", compact_text({{"status", job ? job_state_name(job->state) : "removed"}}));
      return false;
    }
    if (now_s() > until_s || service.is_stopping) return false;
    if (piece.empty()) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kStreamTurn_s));
      piece = ": \n\n";  // whether anybody still listens is found out by writing
    }
    return true;
  };
  return answer;
}

std::optional<JobArtifact> artifact_named(Service& service, const JobRecord& job, const std::string& name) {
  for (JobArtifact& one : job_artifacts(service, job)) {
    if (one.identifier == name) return std::move(one);
  }
  return std::nullopt;
}

HttpAnswer answer_files(Service& service, const HttpRequest& request, const Json& body) {
  const AskedJob asked = asked_job(service, request, body);
  if (!asked.job) return asked.refused;
  const std::string name = request.path_values.find("checkpoint")->second;
  const std::optional<JobArtifact> artifact = artifact_named(service, *asked.job, name);
  if (!artifact) return refusal(404, fmt::format("job '{}' has no checkpoint '{}'", asked.job->id, name));
  Json files = Json::array();
  std::error_code failure;
  for (fs::directory_iterator it(artifact->path, failure), end; !failure && it != end; it.increment(failure)) {
    std::error_code none;
    if (!it->is_regular_file(none) || it->is_symlink(none)) continue;
    const std::string file = it->path().filename().string();
    files.push_back({{"name", file}, {"bytes", it->file_size(none)}, {"url", request.path + "/" + file}});
  }
  return json_answer({{"files", files}});
}

HttpAnswer answer_file(Service& service, const HttpRequest& request, const Json& body) {
  const AskedJob asked = asked_job(service, request, body);
  if (!asked.job) return asked.refused;
  const std::string name = request.path_values.find("checkpoint")->second, file = request.path_values.find("file")->second;
  const std::optional<JobArtifact> artifact = artifact_named(service, *asked.job, name);
  std::error_code failure;
  const fs::path path = artifact ? fs::path(artifact->path) / file : fs::path();
  const bool is_there = artifact && file.find('/') == std::string::npos && !file.starts_with(".") &&
                        fs::is_regular_file(path, failure) && !fs::is_symlink(path, failure);
  if (!is_there) return refusal(404, fmt::format("no file '{}' in checkpoint '{}'", file, name));
  HttpAnswer answer;
  answer.type = "application/octet-stream";
  answer.headers.emplace_back("Content-Disposition", "attachment");
  auto stream = std::make_shared<std::ifstream>(path, std::ios::binary);
  answer.next_piece = [stream](std::string& piece) {
    piece.resize(kPieceBytes);
    stream->read(piece.data(), static_cast<std::streamsize>(piece.size()));
    piece.resize(static_cast<size_t>(stream->gcount()));
    return static_cast<bool>(*stream);
  };
  return answer;
}

struct JobRow {
  const char* method;
  const char* verb;  // below job/, jobs/{job_uuid}/
  const char* short_path;
  const char* about;
  const char* schema;
  RouteHandler handler;
};

const RouteAnswer kNoSuchJob = problem_answer(404, "there is no such job");

ServiceRoute route_of_row(const JobRow& row) {
  ServiceRoute route = new_route(row.method, "", "", row.about);
  route.answers = {json_result(row.schema, row.about), kNoSuchJob};
  route.handler = row.handler;
  if (std::string(row.verb) == "logs") {
    route.parameters.push_back(query_integer("after", "the first line", 0, int64_t{1} << 53));
    route.parameters.push_back(query_integer("limit", "how many lines at most", 1, kMostLines));
    route.parameters.push_back(query_integer("tail", "the last lines, in place of `after` and `limit`", 1, kMostLines));
  }
  if (std::string(row.verb) == "logs/stream") {
    route.answers[0] = {200, row.about, "", "text/event-stream"};
    route.parameters.push_back(query_integer("after", "the first line", 0, int64_t{1} << 53));
  }
  return route;
}

}  // namespace

std::vector<ServiceRoute> job_routes() {
  std::vector<ServiceRoute> out;
  const std::vector<JobRow> rows = {
      {"GET", "status", "/training-job-status", "a job: state, plan beside what is measured, losses, checkpoints", "Job",
       answer_status},
      {"GET", "artifacts", "/training-job-artifacts", "the checkpoints of a job", "Artifacts", answer_artifacts},
      {"POST", "cancel", "/cancel-training-job", "stops a job: SIGTERM to all its processes, SIGKILL after the grace", "Said",
       answer_cancel},
      {"GET", "logs", "/training-job-logs", "lines of a job's log", "Logs", answer_logs},
      {"GET", "logs/stream", "", "lines of a job's log as they come, for 15 s", "", answer_stream}};
  for (const std::string version : {"v1", "v1alpha"}) {
    const std::string base = "/" + version + "/post-training/";
    ServiceRoute list = new_route("GET", base + "jobs", "list_jobs_" + version, "all jobs, the newest first");
    list.answers = {json_result("JobList", "ids and states")};
    list.handler = answer_list;
    out.push_back(list);
    if (version == "v1") out.push_back(route_alias(list, "/training-jobs", "list_jobs_short"));
    for (const JobRow& row : rows) {
      std::string verb = row.verb;
      std::replace(verb.begin(), verb.end(), '/', '_');
      ServiceRoute by_path = route_of_row(row), by_query = by_path;
      by_path.path = base + "jobs/{job_uuid}/" + row.verb;
      by_path.operation = verb + "_of_" + version;
      by_path.parameters.push_back(path_id("job_uuid", "the job"));
      by_query.path = base + "job/" + row.verb;
      by_query.operation = verb + "_" + version;
      by_query.parameters.push_back(query_id("job_uuid", "the job"));
      if (std::string(row.method) == "POST") {
        for (ServiceRoute* one : {&by_path, &by_query}) {
          one->body = BodyNeed::kOptional;
          one->body_schema = "JobIdBody";
          one->answers.push_back(problem_answer(409, "the job has ended"));
        }
      }
      if (version == "v1" && row.short_path[0] != 0) {
        ServiceRoute alias = route_alias(by_query, row.short_path, verb + "_short");
        alias.mistake_status = 400;
        out.push_back(std::move(alias));
      }
      out.push_back(std::move(by_path));
      out.push_back(std::move(by_query));
    }
  }
  ServiceRoute files =
      new_route("GET", "/v1/post-training/jobs/{job_uuid}/checkpoints/{checkpoint}", "checkpoint_files", "the files of a checkpoint");
  const RouteParameter checkpoint = {
      "checkpoint", "path", "identifier of the checkpoint", {{"type", "string"}, {"maxLength", 400}}, true};
  files.parameters = {path_id("job_uuid", "the job"), checkpoint};
  files.answers = {json_result("AnyObject", "names, bytes and where to fetch them"), problem_answer(404, "no such job or checkpoint")};
  files.handler = answer_files;
  out.push_back(files);
  ServiceRoute file = route_alias(files, files.path + "/{file}", "checkpoint_file");
  file.about = "a file of a checkpoint";
  file.parameters.push_back({"file", "path", "its name", {{"type", "string"}, {"maxLength", 255}}, true});
  file.answers = {{200, "its bytes", "", "application/octet-stream"}, problem_answer(404, "no such job, checkpoint or file")};
  file.handler = answer_file;
  out.push_back(file);
  return out;
}

}  // namespace distsetup
