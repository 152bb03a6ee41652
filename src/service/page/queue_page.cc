#include "service/page/queue_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/names.h"
#include "base/quantity.h"
#include "service/page/html.h"
#include "service/page/json_values.h"

namespace distsetup {
namespace {

Json queue_row(const Json& job) {
  const std::string state = text_at(job, "/state");
  const int64_t step = whole_at(job, "/progress/step"), steps = whole_at(job, "/progress/steps");
  return {{"id", text_at(job, "/job_uuid")},
          {"state", state},
          {"reason", is_final_state(state) || state == "queued" ? text_at(job, "/reason") : ""},
          {"method", text_at(job, "/method")},
          {"model", text_at(job, "/model")},
          {"step", std::to_string(step)},
          {"steps", steps > 0 ? std::to_string(steps) : ""},
          {"step_text", fmt::format("{} of {}", format_count(step), format_count(steps))},
          {"place", has_number_at(job, "/queue_position") ? fmt::format("place {}", whole_at(job, "/queue_position")) : ""},
          {"created_at", text_at(job, "/created_at")},
          {"created_text", short_time(text_at(job, "/created_at"))}};
}

std::string counts_text(const Json& queue) {
  const int64_t running = whole_at(queue, "/counts/in_progress") + whole_at(queue, "/counts/scheduled");
  std::string text = fmt::format("{} of {} running, {} waiting", running,
                                 std::max<int64_t>(1, whole_at(queue, "/max_concurrent_jobs")), whole_at(queue, "/counts/queued"));
  for (const char* state : {"completed", "failed", "cancelled"})
    text += fmt::format(", {} {}", whole_at(queue, fmt::format("/counts/{}", state).c_str()), state);
  return text;
}

}  // namespace

bool is_final_state(std::string_view state) { return state == "completed" || state == "failed" || state == "cancelled"; }

std::string short_time(std::string_view utc) {
  constexpr std::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto number = [&utc](size_t at) {
    return is_digit(utc[at]) && is_digit(utc[at + 1]) ? (utc[at] - '0') * 10 + (utc[at + 1] - '0') : -1;
  };
  if (utc.size() < 16 || utc[4] != '-' || utc[10] != 'T' || number(5) < 1 || number(5) > 12 || number(8) < 1) return std::string(utc);
  return fmt::format("{} {} {}", number(8), kMonths[number(5) - 1], utc.substr(11, 5));
}

std::string queue_page(const Json& queue) {
  const Json& jobs = list_at(queue, "/jobs");
  Json values = {{"title", "Jobs"},           {"version", text_at(queue, "/version")},
                 {"is_live", true},           {"counts", counts_text(queue)},
                 {"has_jobs", !jobs.empty()}, {"jobs", Json::array()}};
  for (const Json& job : jobs) values["jobs"].push_back(queue_row(job));
  return render_html("queue", values);
}

std::string notice_page(const Notice& notice, std::string_view version) {
  return render_html("notice", {{"title", notice.title},
                                {"version", std::string(version)},
                                {"is_live", false},
                                {"message", notice.message},
                                {"help", notice.help},
                                {"asks_token", notice.asks_token},
                                {"to", notice.to}});
}

}  // namespace distsetup
