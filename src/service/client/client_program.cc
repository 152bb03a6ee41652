#include "service/client/client_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <iostream>
#include <map>
#include <optional>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/names.h"
#include "service/client/client_text.h"
#include "service/client/request_file.h"
#include "service/client/service_call.h"
#include "service/page/json_values.h"
#include "service/page/queue_page.h"

namespace distsetup {
namespace {

// As the commands of distsetup end.
constexpr int kEndsDone = 0, kEndsFailed = 1, kEndsMisused = 2, kEndsInvalid = 3, kEndsNotFitting = 4, kEndsUnusable = 5,
              kEndsJobFailed = 6, kEndsInterrupted = 130;
constexpr useconds_t kPollUs = 400'000;
constexpr int64_t kPageLines = 1000;

struct ClientLine {
  std::string verb;
  std::map<std::string, std::string> flags;
  std::vector<std::string> positionals;
  bool has(const char* name) const { return flags.find(name) != flags.end(); }
  std::string text(const char* name) const { return has(name) ? flags.at(name) : ""; }
};

ClientLine read_line(const std::vector<std::string>& words) {
  ClientLine line;
  bool is_behind = false;
  for (const std::string& word : words) {
    if (!is_behind && word == "--") {
      is_behind = true;
    } else if (!is_behind && word.starts_with("--")) {
      const size_t equals = word.find('=');
      line.flags[word.substr(2, equals == std::string::npos ? equals : equals - 2)] =
          equals == std::string::npos ? "" : word.substr(equals + 1);
    } else if (line.verb.empty() && !is_behind) {
      line.verb = word;
    } else {
      line.positionals.push_back(word);
    }
  }
  return line;
}

// What failed: diagnostics to standard error, with --json an object to standard output.
int end_with(const ClientLine& line, const Diagnostics& diagnostics, int code) {
  std::cerr << format_diagnostics(diagnostics);
  if (line.has("json")) {
    Json list = Json::array();
    for (const Diagnostic& one : diagnostics)
      list.push_back({{"code", one.code}, {"severity", "error"}, {"message", one.message}, {"help", one.help}});
    std::cout << dump_json({{"schema_version", 1}, {"verdict", nullptr}, {"diagnostics", list}});
  }
  return code;
}

int end_with(const ClientLine& line, const Diagnostics& diagnostics) {
  const std::string& first = diagnostics.front().code;
  return end_with(line, diagnostics,
                  first == code::kEnvironment ? kEndsUnusable
                  : first == code::kWrongType ? kEndsMisused
                                              : kEndsInvalid);
}

int print_answer(const ClientLine& line, const Json& json, const std::string& text, int code = kEndsDone) {
  std::cout << (line.has("json") ? dump_json(json) : text) << std::flush;
  return std::cout.good() ? code : kEndsFailed;
}

Result<ServiceAddress> find_service(const ClientLine& line) {
  Result<ServiceAddress> address = parse_service_address(line.text("server"));
  if (!address.ok() || !line.has("token-file")) return address;
  const Result<std::string> token = read_file(line.text("token-file"));
  if (!token.ok()) return token.diagnostics;
  const size_t begin = token->find_first_not_of(" \t\r\n");
  if (begin == std::string::npos)
    return error(code::kMissingArgument, {line.text("token-file")}, "the file of the token is empty",
                 "put the token of the service into it");
  address->token = token->substr(begin, token->find_first_of(" \t\r\n", begin) - begin);
  address->token_file = line.text("token-file");
  return address;
}

// Of a refusal: the detail, and every mistake with its place.
Diagnostics refusals(const ServiceReply& reply) {
  Diagnostics said;
  for (const Json& one : list_at(reply.body, "/errors")) {
    const std::string where = text_at(one, "/where");
    said.push_back(
        error(code::kUnknownValue, {}, (where.empty() ? "" : where + ": ") + text_at(one, "/message"), text_at(one, "/help")));
  }
  const std::string detail = text_at(reply.body, "/detail");
  if (said.empty())
    said.push_back(error(code::kUnknownValue, {}, detail.empty() ? fmt::format("the service answers {}", reply.status) : detail));
  return said;
}

class JobsClient {
 public:
  JobsClient(ClientLine line, ServiceAddress address) : line_(std::move(line)), address_(std::move(address)) {}
  int run();

 private:
  int list();
  int show();
  int logs(const std::string& id, bool follows);
  int cancel();
  int submit();
  int plan();
  int refused(const ServiceReply& reply, const std::string& id = "");
  Result<ServiceReply> status_of(const std::string& id) {
    return ask_service(address_, "GET", "/v1/post-training/job/status?job_uuid=" + url_part(id));
  }
  Result<Json> wait_for(const std::string& id);

  ClientLine line_;
  ServiceAddress address_;
};

int JobsClient::refused(const ServiceReply& reply, const std::string& id) {
  if (reply.status == 401 || reply.status == 403) {
    const bool had_token = !address_.token.empty();
    return end_with(
        line_,
        {error(code::kEnvironment, {},
               had_token ? fmt::format("the service at {} does not take the token in '{}'", address_.url(), address_.token_file)
                         : fmt::format("the service at {} wants a token", address_.url()),
               had_token ? "ask who runs the service for the right one" : "--token-file FILE, or DISTSETUP_TOKEN_FILE")},
        kEndsUnusable);
  }
  if (reply.status == 404 && !id.empty()) {
    std::vector<std::string> known;
    if (const Result<ServiceReply> queue = ask_service(address_, "GET", "/v1/queue"); queue.ok())
      for (const Json& job : list_at(queue->body, "/jobs")) known.push_back(text_at(job, "/job_uuid"));
    const std::string nearest = nearest_name(id, known);
    return end_with(line_,
                    {error(code::kUnknownJob, {}, fmt::format("no job '{}' at {}", id, address_.url()),
                           nearest.empty() ? "distsetup jobs list shows them" : fmt::format("did you mean '{}'", nearest))},
                    kEndsFailed);
  }
  const bool fits_nowhere =
      text_at(reply.body, "/plan/verdict") == "does_not_fit" || text_at(reply.body, "/verdict") == "does_not_fit";
  if (fits_nowhere && !line_.has("json")) std::cout << plan_text(reply.body.contains("plan") ? reply.body["plan"] : reply.body);
  const bool is_conflict = reply.status == 409 || reply.status == 429 || reply.status >= 500;
  return end_with(line_, refusals(reply), fits_nowhere ? kEndsNotFitting : is_conflict ? kEndsFailed : kEndsInvalid);
}

int JobsClient::list() {
  const Result<ServiceReply> reply = ask_service(address_, "GET", "/v1/queue");
  if (!reply.ok()) return end_with(line_, reply.diagnostics);
  if (!reply->is_good()) return refused(*reply);
  return print_answer(line_, reply->body, queue_text(reply->body, line_.text("state")));
}

int JobsClient::show() {
  const Result<ServiceReply> reply = status_of(line_.positionals.front());
  if (!reply.ok()) return end_with(line_, reply.diagnostics);
  if (!reply->is_good()) return refused(*reply, line_.positionals.front());
  return print_answer(line_, reply->body, job_text(reply->body));
}

int end_code(const std::string& state) {
  return state == "completed" ? kEndsDone : state == "failed" ? kEndsJobFailed : kEndsInterrupted;
}

// Pages of the log from the last `tail` lines on; to the end of the job when it is followed.
int JobsClient::logs(const std::string& id, bool follows) {
  const std::string path = fmt::format("/v1/post-training/job/logs?job_uuid={}", url_part(id));
  const std::string rank = line_.text("rank");
  std::string query = fmt::format("&tail={}", line_.has("tail") ? line_.text("tail") : std::to_string(kPageLines));
  while (true) {
    const Result<ServiceReply> reply = ask_service(address_, "GET", path + query);
    if (!reply.ok()) return end_with(line_, reply.diagnostics);
    if (!reply->is_good()) return refused(*reply, id);
    const Json& lines = list_at(reply->body, "/logs");
    for (const Json& one : lines) {
      if (!rank.empty() && (!has_number_at(one, "/rank") || std::to_string(whole_at(one, "/rank")) != rank)) continue;
      std::cout << (line_.has("json") ? one.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n" : log_line_text(one));
    }
    std::cout << std::flush;
    if (!std::cout.good()) return kEndsFailed;
    if (!follows) return kEndsDone;
    const std::string state = text_at(reply->body, "/status");
    if (lines.empty() && is_final_state(state)) {
      std::cerr << fmt::format("{} {}\n", id, state);
      return end_code(state);
    }
    if (lines.empty()) ::usleep(kPollUs);
    query = fmt::format("&after={}&limit={}", whole_at(reply->body, "/next"), kPageLines);
  }
}

Result<Json> JobsClient::wait_for(const std::string& id) {
  while (true) {
    Result<ServiceReply> reply = status_of(id);
    if (!reply.ok()) return reply.diagnostics;
    if (!reply->is_good()) return refusals(*reply);
    if (is_final_state(text_at(reply->body, "/state"))) return reply->body;
    ::usleep(kPollUs);
  }
}

int JobsClient::cancel() {
  Json answers = Json::array();
  std::string text;
  for (const std::string& id : line_.positionals) {
    const Result<ServiceReply> reply = ask_service(address_, "POST", "/v1/post-training/job/cancel", Json({{"job_uuid", id}}).dump());
    if (!reply.ok()) return end_with(line_, reply.diagnostics);
    if (!reply->is_good()) return refused(*reply, id);
    Json answer = reply->body;
    if (line_.has("wait")) {
      const Result<Json> end = wait_for(id);
      if (!end.ok()) return end_with(line_, end.diagnostics);
      answer = {{"job_uuid", id}, {"status", text_at(*end, "/state")}, {"message", fmt::format("{} {}", id, text_at(*end, "/state"))}};
    }
    answers.push_back(answer);
    text += text_at(answer, "/message") + "\n";
  }
  return print_answer(line_, answers, text);
}

int JobsClient::submit() {
  Result<RequestFile> request = read_request_file(line_.positionals.front(), line_.text("method"));
  if (!request.ok()) return end_with(line_, request.diagnostics);
  if (line_.has("job-id")) request->body["job_uuid"] = line_.text("job-id");
  if (line_.has("rows")) {
    const Result<Json> rows = read_rows(line_.text("rows"));
    if (!rows.ok()) return end_with(line_, rows.diagnostics);
    const Json dataset = {{"dataset_id", text_at(request->body, "/training_config/data_config/dataset_id")},
                          {"purpose", "post-training/messages"},
                          {"source", {{"type", "rows"}, {"rows", *rows}}}};
    const Result<ServiceReply> reply = ask_service(address_, "POST", "/v1/datasets", dataset.dump());
    if (!reply.ok()) return end_with(line_, reply.diagnostics);
    if (!reply->is_good()) return refused(*reply);
  }
  const Result<ServiceReply> reply = ask_service(address_, "POST", "/v1/post-training/" + request->action, request->body.dump());
  if (!reply.ok()) return end_with(line_, reply.diagnostics);
  if (!reply->is_good()) return refused(*reply);
  const std::string id = text_at(reply->body, "/job_uuid");
  if (!line_.has("follow")) return print_answer(line_, reply->body, id + "\n");
  std::cerr << id << "\n";
  return logs(id, true);
}

int JobsClient::plan() {
  const Result<RequestFile> request = read_request_file(line_.positionals.front(), line_.text("method"));
  if (!request.ok()) return end_with(line_, request.diagnostics);
  const Result<ServiceReply> reply = ask_service(address_, "POST", "/v1/plan", plan_request(*request).dump());
  if (!reply.ok()) return end_with(line_, reply.diagnostics);
  if (!reply->is_good()) return refused(*reply);
  const bool fits = text_at(reply->body, "/verdict") != "does_not_fit";
  return print_answer(line_, reply->body, plan_text(reply->body), fits ? kEndsDone : kEndsNotFitting);
}

int JobsClient::run() {
  if (line_.verb == "list") return list();
  if (line_.verb == "show") return show();
  if (line_.verb == "logs") return logs(line_.positionals.front(), line_.has("follow"));
  if (line_.verb == "cancel") return cancel();
  if (line_.verb == "submit") return submit();
  if (line_.verb == "plan") return plan();
  return end_with(line_, {error(code::kUnknownCommand, {}, fmt::format("no verb '{}'", line_.verb))}, kEndsMisused);
}

}  // namespace

int run_jobs_client(const std::vector<std::string>& words) {
  ClientLine line = read_line(words);
  if (line.positionals.empty() && line.verb != "list")
    return end_with(line, {error(code::kMissingArgument, {}, fmt::format("'{}' needs a job or a file", line.verb))}, kEndsMisused);
  Result<ServiceAddress> address = find_service(line);
  if (!address.ok()) return end_with(line, address.diagnostics);
  return JobsClient(std::move(line), std::move(*address)).run();
}

}  // namespace distsetup
