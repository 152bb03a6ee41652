#include "service/client/client_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/quantity.h"
#include "service/page/chart.h"
#include "service/page/html.h"
#include "service/page/json_values.h"
#include "service/page/metric_curves.h"
#include "service/page/plan_section.h"
#include "service/page/queue_page.h"

namespace distsetup {
namespace {

// Columns as wide as their widest cell; the last is not padded.
std::string columns_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t n = 0; n < row.size(); ++n) widths[n] = std::max(widths[n], row[n].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t n = 0; n < row.size(); ++n) line += n + 1 == row.size() ? row[n] : fmt::format("{:<{}}  ", row[n], widths[n]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string progress_text(const Json& job) {
  const int64_t steps = whole_at(job, "/progress/steps");
  if (steps > 0) return fmt::format("{}/{}", whole_at(job, "/progress/step"), steps);
  return has_number_at(job, "/queue_position") ? fmt::format("place {}", whole_at(job, "/queue_position")) : "-";
}

// A terminal is not given what a job wrote into its texts to move a cursor.
std::string clean_at(const Json& json, const char* path) {
  std::string text = shown_text(text_at(json, path));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string loss_text(const ChartLine& line) {
  const double first = line.points.front().second, last = line.points.back().second;
  return line.points.size() == 1
             ? short_number(last)
             : fmt::format("{} (was {} at step {:.0f})", short_number(last), short_number(first), line.points.front().first);
}

}  // namespace

std::string queue_text(const Json& queue, const std::string& state) {
  std::vector<std::vector<std::string>> rows = {{"job", "state", "method", "step", "arrived", "model"}};
  for (const Json& job : list_at(queue, "/jobs")) {
    if (!state.empty() && text_at(job, "/state") != state) continue;
    rows.push_back({clean_at(job, "/job_uuid"), clean_at(job, "/state"), clean_at(job, "/method"), progress_text(job),
                    short_time(text_at(job, "/created_at")), clean_at(job, "/model")});
  }
  return rows.size() == 1 ? "no jobs\n" : columns_text(rows);
}

std::string job_text(const Json& job) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&rows](const char* name, const std::string& value) {
    if (!value.empty()) rows.push_back({name, value});
  };
  const std::string phase = clean_at(job, "/phase"), becomes = clean_at(job, "/finetuned_model");
  add("job", clean_at(job, "/job_uuid"));
  add("state", clean_at(job, "/state") + (phase.empty() ? "" : ", " + phase));
  add("reason", clean_at(job, "/reason"));
  add("method", clean_at(job, "/method"));
  add("model", clean_at(job, "/model") + (becomes.empty() ? "" : " -> " + becomes));
  add("data set", clean_at(job, "/dataset_id"));
  if (const int64_t ranks = whole_at(job, "/resources_allocated/world_size"); ranks > 0)
    add("ranks",
        fmt::format("{} × {}, {}", whole_at(job, "/resources_allocated/nodes"), whole_at(job, "/resources_allocated/ranks_per_node"),
                    clean_at(job, "/resources_allocated/fsdp_strategy")));
  add("verdict", clean_at(job, "/plan/verdict"));
  add("plan", clean_at(job, "/plan/summary"));
  if (const std::string tuned = tuned_text(job); !tuned.empty())
    add("tuned", fmt::format("{}, the best of {} runs", shown_text(tuned), whole_at(job, "/tuned/runs")));
  add("step", progress_text(job));
  const MetricCurves curves = read_curves(job);
  if (!curves.loss.points.empty()) add("loss", loss_text(curves.loss));
  if (!curves.margin.points.empty()) add("reward margin", loss_text(curves.margin));
  const double predicted = number_at(job, "/plan/predicted/tokens_per_s"), measured = number_at(job, "/measured/tokens_per_s");
  if (measured > 0) add("tokens/s", fmt::format("{}, predicted {}", short_number(measured), short_number(predicted)));
  const int64_t peak = whole_at(job, "/plan/predicted/peak_allocated_bytes"), got = whole_at(job, "/measured/peak_allocated_bytes");
  if (peak > 0)
    add("memory", format_bytes(peak) + (got > 0 ? fmt::format(" predicted, {} measured", format_bytes(got)) : " predicted"));
  add("arrived", short_time(text_at(job, "/created_at")));
  add("started", short_time(text_at(job, "/started_at")));
  add("ended", short_time(text_at(job, "/completed_at")));
  for (const Json& one : list_at(job, "/checkpoints"))
    add("checkpoint", fmt::format("{}, step {}, {}", clean_at(one, "/identifier"), whole_at(one, "/step"), clean_at(one, "/path")));
  return columns_text(rows);
}

std::string plan_text(const Json& plan) {
  std::string text = clean_at(plan, "/verdict") + "\n";
  for (const std::string& line : plan_sentences(plan)) text += shown_text(line) + "\n";
  return text;
}

std::string log_line_text(const Json& line) {
  const std::string rank = has_number_at(line, "/rank") ? fmt::format("[rank {}] ", whole_at(line, "/rank")) : "";
  return rank + clean_at(line, "/message") + "\n";
}

}  // namespace distsetup
