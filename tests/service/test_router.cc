#include <catch2/catch.hpp>
#include <set>

#include "base/clock.h"
#include "base/file.h"
#include "service/access.h"
#include "service/openapi.h"
#include "service/request_schemas.h"
#include "service/router.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

struct RunningService {
  TemporaryDirectory folder;
  EventLog log{LogLevel::kError};
  Database database;
  JobStore jobs{database};
  DatasetStore datasets{database};
  Service service;
  RunningService() {
    REQUIRE(!has_error(database.open(folder.path("store.sqlite"))));
    service.settings.data_folder = folder.path();
    service.log = &log;
    service.jobs = &jobs;
    service.datasets = &datasets;
  }
  HttpAnswer ask(const std::string& method, const std::string& path, const std::string& body = "",
                 std::vector<std::pair<std::string, std::string>> query = {}, std::map<std::string, std::string> headers = {}) {
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.query = std::move(query);
    request.headers = std::move(headers);
    if (!body.empty() && !request.headers.contains("content-type")) request.headers["content-type"] = "application/json";
    return answer_request(service, std::move(request));
  }
};

}  // namespace

TEST_CASE("service router: paths with names in them, methods, and what there is not") {
  const auto& routes = route_table();
  CHECK(match_route(routes, "GET", "/health").route->operation == "health");
  const RouteMatch match = match_route(routes, "GET", "/v1/post-training/jobs/a/status");
  REQUIRE(match.route != nullptr);
  CHECK(match.values.find("job_uuid")->second == "a");
  CHECK(match_route(routes, "GET", "/v1/post-training/jobs//status").route == nullptr);
  CHECK(match_route(routes, "GET", "/health/").route == nullptr);
  CHECK(match_route(routes, "PUT", "/health").allowed == std::vector<std::string>{"GET"});
  RunningService running;
  CHECK(running.ask("GET", "/nothing").status == 404);
  CHECK(running.ask("DELETE", "/health").status == 405);
  CHECK(running.ask("GET", "/health").status == 200);
}

TEST_CASE("service router: no two routes are the same, and each operation has a name of its own") {
  std::set<std::string> paths, operations;
  for (const ServiceRoute& route : route_table()) {
    INFO(route.path);
    CHECK(paths.insert(route.method + " " + route.path).second);
    CHECK(operations.insert(route.operation).second);
    CHECK(route.handler != nullptr);
    CHECK(!route.answers.empty());
    for (const RouteAnswer& answer : route.answers) CHECK((answer.schema.empty() || component_schemas().contains(answer.schema)));
  }
}

TEST_CASE("service router: the document has every route, parameter and body of the table") {
  const Json document = openapi_document();
  size_t num_operations = 0;
  for (const auto& [path, item] : document["paths"].items()) num_operations += item.size();
  CHECK(num_operations == route_table().size());
  const Json& status = document["paths"]["/v1/post-training/job/status"]["get"];
  CHECK(status["parameters"][0]["name"] == "job_uuid");
  for (const char* code : {"200", "404", "422", "429"}) CHECK(status["responses"].contains(code));
  CHECK(document["paths"]["/v1/post-training/job/cancel"]["post"]["responses"].contains("409"));
}

TEST_CASE("service router: an id that is not there is 404, whatever the route (regression 5)") {
  RunningService running;
  for (const char* path : {"/v1/post-training/job/status", "/v1alpha/post-training/job/artifacts", "/v1/post-training/job/logs",
                           "/training-job-status", "/training-job-logs", "/v1/post-training/job/logs/stream"})
    CHECK(running.ask("GET", path, "", {{"job_uuid", "none"}}).status == 404);
  CHECK(running.ask("GET", "/v1/post-training/jobs/none/status").status == 404);
  CHECK(running.ask("POST", "/v1/post-training/job/cancel", "", {{"job_uuid", "none"}}).status == 404);
  CHECK(running.ask("POST", "/v1/post-training/job/cancel", R"({"job_uuid": "none"})").status == 404);
}

TEST_CASE("service router: what does not fit is refused with its place") {
  RunningService running;
  CHECK(running.ask("GET", "/v1/post-training/job/status").status == 422);
  CHECK(running.ask("GET", "/training-job-status").status == 400);
  CHECK(running.ask("GET", "/v1/post-training/job/status", "", {{"job_uuid", "../x"}}).status == 422);
  CHECK(running.ask("GET", "/v1/post-training/job/status", "", {{"job_uuid", "a"}, {"job_uuid", "a"}}).status == 422);
  CHECK(running.ask("GET", "/v1/post-training/job/status", "", {{"job_uid", "a"}}).status == 422);
  CHECK(running.ask("GET", "/v1/post-training/job/logs", "", {{"job_uuid", "a"}, {"after", "-1"}}).status == 422);
  CHECK(running.ask("GET", "/v1/post-training/job/logs", "", {{"job_uuid", "a"}, {"after", "x"}}).status == 422);
  CHECK(running.ask("POST", "/v1/datasets", "{}", {}, {{"content-type", "text/plain"}}).status == 415);
  const HttpAnswer answer = running.ask("POST", "/v1/datasets", "{\"source\": 3}");
  CHECK(answer.status == 422);
  CHECK(Json::parse(answer.body)["errors"][0]["where"] == "source");
}

TEST_CASE("service access: tokens, and the Host header where there are none") {
  RunningService running;
  CHECK(running.ask("GET", "/v1/queue", "", {}, {{"host", "evil.example"}}).status == 403);
  CHECK(running.ask("GET", "/health", "", {}, {{"host", "127.0.0.1:8322"}}).status == 200);
  CHECK(running.ask("GET", "/health", "", {}, {{"host", "[::1]:8322"}}).status == 200);
  running.service.settings.tokens = {"0123456789abcdef", "another-token-of-16"};
  CHECK(running.ask("GET", "/v1/providers").status == 401);
  CHECK(running.ask("GET", "/nothing").status == 401);
  CHECK(running.ask("GET", "/health", "", {}, {{"host", "evil.example"}}).status == 200);
  CHECK(running.ask("GET", "/v1/providers", "", {}, {{"authorization", "Bearer 0123456789abcdef"}}).status == 200);
  CHECK(running.ask("GET", "/v1/providers", "", {}, {{"authorization", "bearer another-token-of-16"}}).status == 200);
  CHECK(running.ask("GET", "/v1/providers", "", {}, {{"authorization", "Bearer 0123456789abcde"}}).status == 401);
  CHECK(running.ask("GET", "/v1/providers", "", {}, {{"authorization", "Bearer "}}).status == 401);
  CHECK(running.ask("GET", "/v1/providers", "", {}, {{"authorization", "Basic dXNlcjowMTIzNDU2Nzg5YWJjZGVm"}}).status == 200);
}

TEST_CASE("service access: so many requests a second, and a burst") {
  RateLimiter limiter(2);
  int taken = 0;
  for (int i = 0; i < 20; ++i) taken += limiter.wait_s("a", 100) == 0 ? 1 : 0;
  CHECK(taken == 8);
  CHECK(limiter.wait_s("a", 100) == Approx(0.5));
  CHECK(limiter.wait_s("b", 100) == 0);
  CHECK(limiter.wait_s("a", 101) == 0);
  CHECK(RateLimiter(0).wait_s("a", 0) == 0);
}

TEST_CASE("service router: a node that does not see the data folder is not taken, and is told so") {
  RunningService running;
  running.service.settings.launcher = LauncherKind::kNodes;
  running.service.settings.nodes = 2;
  REQUIRE(!has_error(running.service.nodes.open(running.folder.path())));
  const HttpAnswer stranger = running.ask("GET", "/v1/nodes/1");
  CHECK(stranger.status == 409);
  CHECK(stranger.body.find("does not see this service's data folder") != std::string::npos);
  CHECK(running.ask("GET", "/v1/nodes/1", "", {{"word", "another"}}).status == 409);
  CHECK(running.service.nodes.num_here(now_s(), 10) == 0);
  const Result<std::string> word = read_file(running.folder.path(kNodeWordFile));
  REQUIRE(word.ok());
  CHECK(running.ask("GET", "/v1/nodes/1", "", {{"word", *word}}).status == 200);
  CHECK(running.service.nodes.num_here(now_s(), 10) == 1);
  CHECK(running.ask("GET", "/v1/nodes/2", "", {{"word", *word}}).status == 409);  // there are two: 0 and 1
}

TEST_CASE("service router: a method that nobody knows") {
  CHECK(refuse_route(match_route(route_table(), "QUERY", "/health"), "QUERY", "/health").status == 405);
  CHECK(refuse_route(match_route(route_table(), "QUERY", "/nothing"), "QUERY", "/nothing").status == 404);
}

TEST_CASE("service access: a browser's token is base64, whole or not at all") {
  RunningService running;
  running.service.settings.tokens = {"0123456789abcdef"};
  const auto status = [&](const std::string& token) {
    return running.ask("GET", "/v1/providers", "", {}, {{"authorization", "Basic " + token}}).status;
  };
  CHECK(status("dTowMTIzNDU2Nzg5YWJjZGVm") == 200);   // u:0123456789abcdef
  CHECK(status("dTowMTIzNDU2Nzg5YWJjZGVm!") == 401);  // which was read up to the mistake before
  CHECK(status("dTowMTIzNDU2Nzg5YWJjZGVm====") == 401);
}
