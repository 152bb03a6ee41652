// The page as bytes: values in, HTML out. tests/data/service_page/*.json are answers of the service, *.html what becomes of them;
// after a change that is meant: DISTSETUP_UPDATE_PAGES=1 service_tests "[page]", and the difference is the review.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <regex>

#include "base/file.h"
#include "base/json.h"
#include "service/page/chart.h"
#include "service/page/files_page.h"
#include "service/page/html.h"
#include "service/page/job_page.h"
#include "service/page/plan_section.h"
#include "service/page/queue_page.h"
#include "service/page/submit_page.h"

using namespace distsetup;

namespace {

std::string page_data(const std::string& name) {
  return std::string(std::getenv("DISTSETUP_SOURCE")) + "/tests/data/service_page/" + name;
}

Json page_json(const std::string& name) {
  const Result<std::string> text = read_file(page_data(name));
  REQUIRE(text.ok());
  return Json::parse(*text);
}

void is_page(const std::string& name, const std::string& html) {
  const std::string path = page_data(name);
  if (std::getenv("DISTSETUP_UPDATE_PAGES") != nullptr) std::ofstream(path, std::ios::binary) << html;
  const Result<std::string> expected = read_file(path);
  REQUIRE(expected.ok());
  CHECK(*expected == html);
}

// What any page must be: no script but ours, no other host, no style or handler in an element, each id once, sections closed.
void is_sound(const std::string& html) {
  size_t scripts = 0;
  for (size_t at = html.find("<script"); at != std::string::npos; at = html.find("<script", at + 1)) scripts += 1;
  CHECK(scripts == 1);
  CHECK_FALSE(std::regex_search(html, std::regex("<[^>]* (style|on[a-z]+)=")));
  CHECK_FALSE(std::regex_search(html, std::regex("(href|src|action)=\"(?!/|#)")));
  std::map<std::string, int> ids, opened;
  const std::regex id(" id=\"([^\"]*)\""), tag("<(/?)([a-z0-9]+)[^>]*?(/?)>");
  for (auto it = std::sregex_iterator(html.begin(), html.end(), id); it != std::sregex_iterator(); ++it) ids[(*it)[1]] += 1;
  for (const auto& [name, count] : ids) CHECK((name + " " + std::to_string(count)) == name + " 1");
  for (auto it = std::sregex_iterator(html.begin(), html.end(), tag); it != std::sregex_iterator(); ++it)
    if ((*it)[3].length() == 0) opened[(*it)[2]] += (*it)[1].length() == 0 ? 1 : -1;
  for (const char* empty : {"meta", "link", "input"}) opened.erase(empty);
  for (const auto& [name, count] : opened) CHECK((name + " " + std::to_string(count)) == name + " 0");
}

LogView sample_log() { return {0, {"[rank 0] step 1  loss 5.5", "[rank 0] <b>bold</b> & \x1b[1mcoloured\x1b[0m"}, 400}; }

}  // namespace

TEST_CASE("page: the queue", "[page]") {
  const std::string html = queue_page(page_json("queue.json"));
  is_sound(html);
  is_page("queue.html", html);
  is_sound(queue_page(Json::object()));
  CHECK(queue_page(Json::object()).find("No job yet") != std::string::npos);
}

TEST_CASE("page: a job that runs", "[page]") {
  const std::string html = job_page(page_json("job.json"), sample_log(), "0.1.0");
  is_sound(html);
  CHECK(html.find("{{") == std::string::npos);
  is_page("job.html", html);
}

TEST_CASE("page: a job of which nothing is known yet", "[page]") {
  const std::string html =
      job_page({{"job_uuid", "a"}, {"state", "queued"}, {"plan", nullptr}, {"losses", Json::array()}}, {}, "0.1.0");
  is_sound(html);
  for (const char* part : {"No plan yet", "No step yet", "None yet", "Nothing written yet", "Cancel this job"})
    CHECK(html.find(part) != std::string::npos);
}

TEST_CASE("page: hostile text is text", "[page]") {
  const std::string html = job_page(page_json("hostile.json"), {-1, {"</pre><script>alert(1)</script>", "\xff\xfe\x01"}, 2}, "0.1.0");
  is_sound(html);
  CHECK(html.find("<script>") == std::string::npos);
  CHECK(html.find("javascript:") == std::string::npos);
  CHECK(html.find("&lt;script&gt;alert(1)&lt;/script&gt;") != std::string::npos);
  is_page("hostile.html", html);
  const Json queue = {{"jobs", {page_json("hostile.json")}}};
  is_sound(queue_page(queue));
  is_sound(notice_page({"<b>", "<script>", "\"><script>", true, "\"><script>"}, "<x>"));
  is_sound(files_page("<a>", "<b>", {{"files", {{{"name", "<script>"}, {"bytes", 5}, {"url", "/v1/x"}}}}}, "0.1.0"));
  SubmitView form;
  form.fields = {{"model", "\"><script>alert(1)</script>"}, {"method", "<script>"}};
  form.datasets = {"<script>"};
  form.problems = {{"<script>", "<script>", "<script>"}};
  form.plan_lines = {"<script>"};
  is_sound(submit_page(form, "0.1.0"));
}

TEST_CASE("page: the form", "[page]") {
  SubmitView view;
  view.datasets = {"pairs"};
  view.models = {"tiny"};
  view.fields = {{"method", "dpo"}, {"model", "tiny"}, {"learning_rate", "1e-3"}};
  view.verdict = "does_not_fit";
  view.plan_lines = plan_sentences(page_json("job.json")["plan"]);
  view.problems = {{"training_config.n_epochs", "found 0, expected 1 or more", "write 1"}};
  std::string html = submit_page(view, "0.1.0");
  is_sound(html);
  is_page("submit.html", html);
  CHECK(html.find("value=\"submit\"") == std::string::npos);  // what does not fit cannot be submitted
  view.verdict = "tight";
  CHECK(submit_page(view, "0.1.0").find("value=\"submit\"") != std::string::npos);
}

TEST_CASE("page: fields become a request", "[page]") {
  const FormFields fields =
      read_form("method=dpo&model=a%2Fb&job_uuid=x+y&n_epochs=3&learning_rate=5e-5&batch_size=many&%zz=1&flag&beta=0.5&beta=0.2");
  CHECK(fields.at("model") == "a/b");
  CHECK(fields.at("job_uuid") == "x y");
  CHECK(fields.at("%zz") == "1");
  CHECK(fields.at("flag").empty());
  const Json request = request_of_form(fields);
  CHECK(action_of_form(fields) == "preference-optimize");
  CHECK(request["training_config"]["n_epochs"] == 3);
  CHECK(request["training_config"]["optimizer_config"]["lr"] == 5e-5);
  CHECK(request["training_config"]["data_config"]["batch_size"] == "many");  // refused by its name, later
  CHECK(request["algorithm_config"]["beta"] == 0.2);
  const Json tuned = request_of_form({{"lora_rank", "8"}});
  CHECK(action_of_form({}) == "supervised-fine-tune");
  CHECK(tuned["algorithm_config"]["alpha"] == 16);
  CHECK_FALSE(request_of_form({}).contains("algorithm_config"));
  CHECK(read_form(encode_form_value("a&b=c") + "=" + encode_form_value("\n 100%ä")).at("a&b=c") == "\n 100%ä");
}

TEST_CASE("page: charts keep the shape and survive any number", "[page]") {
  std::vector<std::pair<double, double>> points;
  for (int n = 0; n < 10000; ++n) points.emplace_back(n, std::sin(n / 100.0));
  points[5000].second = 99;
  const auto few = thinned(points, 400);
  CHECK(few.size() <= 400);
  CHECK(few.front() == points.front());
  CHECK(few.back() == points.back());
  CHECK(std::find(few.begin(), few.end(), points[5000]) != few.end());
  CHECK(std::is_sorted(few.begin(), few.end()));
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  CHECK(chart_html({"a", "A", {{"l", {}}}, false, 0, 10}).empty());
  CHECK(chart_html({"a", "A", {{"l", {{1, nan}, {2, inf}, {3, 1e308}}}}, false, 0, 10}).empty());
  for (const double value : {0.0, 1e-300, -5.0, 1e29, 0.1}) {
    const std::string html = chart_html({"a", "A", {{"l", {{1, value}, {2, nan}}}}, false, 0, 10});
    CHECK(html.find("nan") == std::string::npos);
    CHECK(html.find("inf") == std::string::npos);
    CHECK(html.find("<polyline") != std::string::npos);
  }
  CHECK(chart_sentence({"a", "A", {{"loss", {{1, 5}, {2, 3}, {3, 4}}}}, false, 0, 0}) ==
        "loss: 5 at step 1, lowest 3 at step 2, highest 5 at step 1, now 4 at step 3");
}

TEST_CASE("page: times", "[page]") {
  CHECK(short_time("2026-11-24T13:24:45.123Z") == "24 Nov 13:24");
  CHECK(short_time("2026-99-24T13:24:45.123Z") == "2026-99-24T13:24:45.123Z");
  CHECK(short_time("").empty());
}
