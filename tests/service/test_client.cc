// `distsetup jobs` as it reads addresses and files, and as it prints answers.
#include <catch2/catch.hpp>
#include <fstream>

#include "service/client/client_text.h"
#include "service/client/request_file.h"
#include "service/client/service_call.h"
#include "support/temporary_directory.h"

using namespace distsetup;

TEST_CASE("client: addresses", "[client]") {
  const auto url = [](std::string_view text) {
    const Result<ServiceAddress> address = parse_service_address(text);
    return address.ok() ? address->url() : "refused: " + address.diagnostics.front().message;
  };
  CHECK(url("http://gpu7:8400") == "http://gpu7:8400");
  CHECK(url("HTTP://gpu7/") == "http://gpu7:8322");
  CHECK(url("localhost") == "http://localhost:8322");
  CHECK(url("[::1]:80") == "http://[::1]:80");
  CHECK(url("http://[::1]") == "http://[::1]:8322");
  for (const char* wrong : {"", "http://", "https://gpu7", "http://gpu7:0", "http://gpu7:70000", "http://gpu7:x",
                            "http://gpu7:80/jobs", "http://a b", "http://u@h", "[::1"})
    CHECK(url(wrong).starts_with("refused"));
  CHECK(url_part("a b/c?ä") == "a%20b%2Fc%3F%C3%A4");
}

TEST_CASE("client: what a request asks for", "[client]") {
  const TemporaryDirectory folder;
  const auto action = [&folder](const std::string& text, const std::string& method = "") {
    const std::string path = (folder.path() + "/request.json");
    std::ofstream(path) << text;
    const Result<RequestFile> request = read_request_file(path, method);
    if (request.ok()) return request->action;
    const Location at = request.diagnostics.front().location;
    return std::to_string(at.line) + ":" + std::to_string(at.column);
  };
  CHECK(action(R"({"algorithm_config": {"type": "dpo"}})") == "preference-optimize");
  CHECK(action(R"({"algorithm_config": {"reward_scale": 1, "gamma": 1}})") == "preference-optimize");
  CHECK(action(R"({"algorithm_config": {"type": "LoRA", "rank": 8}})") == "supervised-fine-tune");
  CHECK(action(R"({"model": "tiny", "algorithm_config": null})") == "supervised-fine-tune");
  CHECK(action(R"({"model": "tiny"})", "dpo") == "preference-optimize");
  CHECK(action("{\n  \"a\": tru\n}") == "2:11");
  CHECK(action("[]") == "1:1");

  const Json plan =
      plan_request({"preference-optimize", {{"finetuned_model", "base"}, {"training_config", {{"n_epochs", 1}}}, {"job_uuid", "x"}}});
  CHECK(plan == Json({{"method", "dpo"}, {"model", "base"}, {"training_config", {{"n_epochs", 1}}}}));

  const std::string rows = (folder.path() + "/rows.jsonl");
  std::ofstream(rows) << "{\"a\": 1}\n\n  {\"a\": 2}\n";
  CHECK(*read_rows(rows) == Json({{{"a", 1}}, {{"a", 2}}}));
  std::ofstream(rows) << "{\"a\": 1}\n{\"a\": \n";
  CHECK(read_rows(rows).diagnostics.front().location.line == 2);
  std::ofstream(rows) << "[{\"a\": 1}]";
  CHECK(read_rows(rows)->size() == 1);
  std::ofstream(rows) << "\n";
  CHECK_FALSE(read_rows(rows).ok());
}

TEST_CASE("client: what it prints", "[client]") {
  const Json queue = {
      {"jobs",
       {{{"job_uuid", "a"},
         {"state", "queued"},
         {"method", "dpo"},
         {"model", "m"},
         {"queue_position", 2},
         {"created_at", "2026-11-24T13:24:45.123Z"}},
        {{"job_uuid", "longer"}, {"state", "failed"}, {"progress", {{"step", 3}, {"steps", 9}}}, {"model", "x\x1b[2J\ny"}}}}};
  CHECK(queue_text(queue, "") ==
        "job     state   method  step     arrived       model\n"
        "a       queued  dpo     place 2  24 Nov 13:24  m\n"
        "longer  failed          3/9                    x\xEF\xBF\xBD[2J y\n");
  CHECK(queue_text(queue, "completed") == "no jobs\n");
  CHECK(queue_text(Json::object(), "") == "no jobs\n");
  CHECK(log_line_text({{"rank", 1}, {"message", "step 1"}}) == "[rank 1] step 1\n");
  CHECK(log_line_text({{"rank", nullptr}, {"message", "begun"}}) == "begun\n");
  const std::string job = job_text({{"job_uuid", "a"},
                                    {"state", "completed"},
                                    {"losses", {{{"step", 1}, {"loss", 5.0}}, {{"step", 2}, {"loss", 4.5}}}},
                                    {"plan", nullptr}});
  CHECK(job.find("loss   4.5 (was 5 at step 1)\n") != std::string::npos);
}
