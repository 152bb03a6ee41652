#include "service/page/job_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quantity.h"
#include "service/page/chart.h"
#include "service/page/html.h"
#include "service/page/json_values.h"
#include "service/page/metric_curves.h"
#include "service/page/plan_section.h"
#include "service/page/queue_page.h"

namespace distsetup {
namespace {

// The axis ends where the run is: a long run would be a stroke at its left edge for hours.
std::string curves_html(const MetricCurves& curves) {
  std::string html = chart_html({"loss", "Loss", {curves.loss, curves.held_out_loss}, false, 0, 1});
  html += chart_html({"rate", "Learning rate", {curves.learning_rate}, true, 0, 1});
  html += chart_html({"rewards", "Rewards", {curves.margin, curves.chosen, curves.rejected}, true, 0, 1});
  html += chart_html({"accuracy", "Pairs told apart", {curves.accuracy}, true, 0, 1});
  return html;
}

struct FactList {
  Json values = Json::array();
  void add(const char* name, const std::string& value, const std::string& beside = "") {
    if (!value.empty()) values.push_back({{"name", name}, {"value", value}, {"beside", beside}});
  }
  void add_last(const char* name, const ChartLine& line) {
    if (!line.points.empty()) add(name, short_number(line.points.back().second));
  }
};

// "0.62 × the predicted 12,345"
std::string rate_beside(double measured, double predicted) {
  if (predicted <= 0) return "";
  if (measured <= 0) return "predicted";
  return fmt::format("{} × the predicted {}", short_number(std::round(measured / predicted * 1000) / 1000), short_number(predicted));
}

std::string devices_text(const Json& job) {
  std::string text;
  for (const Json& device : list_at(job, "/resources_allocated/devices"))
    if (device.is_string()) text += (text.empty() ? "" : ", ") + device.get<std::string>();
  return text;
}

Json fact_values(const Json& job, const MetricCurves& curves) {
  FactList facts;
  facts.add("Method", text_at(job, "/method"));
  const std::string becomes = text_at(job, "/finetuned_model");
  facts.add("Model", text_at(job, "/model"), becomes.empty() ? "" : "becomes " + becomes);
  const int64_t num_rows = whole_at(job, "/num_rows");
  facts.add("Data set", text_at(job, "/dataset_id"), num_rows > 0 ? format_count(num_rows) + " rows" : "");
  const int64_t ranks = whole_at(job, "/resources_allocated/world_size");
  if (ranks > 0) facts.add("Ranks", format_count(ranks), text_at(job, "/plan/sharding"));
  facts.add("GPUs", devices_text(job));
  facts.add("Verdict", text_at(job, "/plan/verdict"), text_at(job, "/plan/summary"));
  facts.add("Tuned", tuned_text(job), fmt::format("the best of {} runs", whole_at(job, "/tuned/runs")));
  const double predicted = number_at(job, "/plan/predicted/tokens_per_s"), measured = number_at(job, "/measured/tokens_per_s");
  if (measured > 0 || predicted > 0)
    facts.add("Tokens per second", short_number(measured > 0 ? measured : predicted), rate_beside(measured, predicted));
  facts.add_last("Loss", curves.loss);
  facts.add_last("Reward margin", curves.margin);
  if (const int64_t tokens = whole_at(job, "/progress/tokens"); tokens > 0) facts.add("Tokens", format_count(tokens));
  facts.add("Arrived", short_time(text_at(job, "/created_at")));
  facts.add("Started", short_time(text_at(job, "/started_at")));
  facts.add("Ended", short_time(text_at(job, "/completed_at")));
  if (const int64_t attempt = whole_at(job, "/attempt"); attempt > 1)
    facts.add("Attempt", fmt::format("{} of {}", attempt, whole_at(job, "/max_retries") + 1));
  return facts.values;
}

std::string log_name(const LogView& log) { return log.rank < 0 ? "all ranks" : fmt::format("rank {}", log.rank); }

Json rank_links(int64_t num_ranks, int64_t shown) {
  constexpr int64_t kMostLinks = 64;
  Json links = Json::array();
  for (int64_t rank = -1; rank < std::min(num_ranks, kMostLinks); ++rank)
    links.push_back({{"rank", rank < 0 ? "all" : std::to_string(rank)},
                     {"name", rank < 0 ? "all ranks" : fmt::format("rank {}", rank)},
                     {"is_shown", rank == shown}});
  return links;
}

std::string log_note(const LogView& log) {
  const auto shown = static_cast<int64_t>(log.lines.size());
  if (log.num_lines <= shown) return shown == 0 ? "Nothing written yet." : "";
  return fmt::format("The last {} of {} lines.", format_count(shown), format_count(log.num_lines));
}

std::string loss_text(const Json& artifact, const char* at) {
  return has_number_at(artifact, at) ? short_number(number_at(artifact, at)) : "–";
}

Json checkpoint_values(const Json& job) {
  Json rows = Json::array();
  for (const Json& one : list_at(job, "/checkpoints"))
    rows.push_back({{"identifier", text_at(one, "/identifier")},
                    {"kind", text_at(one, "/kind")},
                    {"step", format_count(whole_at(one, "/step"))},
                    {"loss", loss_text(one, "/training_metrics/train_loss")},
                    {"held_out_loss", loss_text(one, "/training_metrics/validation_loss")},
                    {"created", short_time(text_at(one, "/created_at"))},
                    {"url", text_at(one, "/files")}});
  return rows;
}

std::string log_text(const LogView& log) {
  std::string text;
  for (const std::string& line : log.lines) text += line + "\n";
  return text;
}

}  // namespace

std::string job_page(const Json& job, const LogView& log, std::string_view version) {
  const MetricCurves curves = read_curves(job);
  const std::string state = text_at(job, "/state"), id = text_at(job, "/job_uuid");
  const int64_t step = whole_at(job, "/progress/step"), steps = whole_at(job, "/progress/steps");
  const bool is_over = is_final_state(state);
  const double left_s = state == "in_progress" ? number_at(job, "/progress/remaining_s") : 0;
  const Json checkpoints = checkpoint_values(job);
  return render_html("job",
                     {{"title", id},
                      {"id", id},
                      {"version", std::string(version)},
                      {"is_live", !is_over},
                      {"state", state},
                      {"phase", is_over ? "" : text_at(job, "/phase")},
                      {"progress", steps > 0 && step > 0 ? fmt::format("{} of {}", format_count(step), format_count(steps)) : ""},
                      {"left", left_s > 0 ? format_duration(left_s) : ""},
                      {"reason", text_at(job, "/reason")},
                      {"reason_kind", state == "failed" ? "failure" : "waiting"},
                      {"facts", fact_values(job, curves)},
                      {"curves", curves_html(curves)},
                      {"memory", memory_values(job)},
                      {"times", time_values(job)},
                      {"has_checkpoints", !checkpoints.empty()},
                      {"checkpoints", checkpoints},
                      {"ranks", rank_links(whole_at(job, "/resources_allocated/world_size"), log.rank)},
                      {"log", log_text(log)},
                      {"log_name", log_name(log)},
                      {"log_note", log_note(log)},
                      {"plan_notes", plan_notes(job.value("plan", Json()))},
                      {"can_cancel", !is_over}});
}

}  // namespace distsetup
