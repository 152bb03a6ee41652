#include "service/page/plan_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "service/page/bars.h"
#include "service/page/html.h"
#include "service/page/json_values.h"

namespace distsetup {
namespace {

constexpr size_t kNumColours = 10;

// The same kind has the same colour in every bar: by the order in which the plan names them.
class KindColours {
 public:
  explicit KindColours(const Json& plan) {
    for (const Json& term : list_at(plan, "/terms")) of(text_at(term, "/class"));
  }
  size_t of(const std::string& kind) { return known_.try_emplace(kind, known_.size() % kNumColours).first->second; }

 private:
  std::map<std::string, size_t> known_;
};

struct PhaseBytes {
  std::string name;
  int64_t bytes = 0;
};

constexpr size_t kHeldColour = 0, kPhaseColour = 2;

std::string phase_bar(int64_t bytes, int64_t held_bytes, int64_t most_bytes) {
  const int64_t always = std::min(held_bytes, bytes);
  return bar_svg({{kHeldColour, always}, {kPhaseColour, bytes - always}}, most_bytes);
}

// A phase with its predicted bar and, where ops of it were metered, the measured one below.
Json phase_rows(const Json& job) {
  std::vector<PhaseBytes> phases;
  std::map<std::string, int64_t> measured;
  int64_t most = 0;
  for (const Json& phase : list_at(job, "/plan/phases")) {
    phases.push_back({text_at(phase, "/phase"), whole_at(phase, "/allocated_bytes")});
    most = std::max(most, phases.back().bytes);
  }
  for (const Json& phase : list_at(job, "/measured/phases")) {
    const int64_t bytes = whole_at(phase, "/allocated_bytes");
    measured[text_at(phase, "/phase")] = bytes;
    most = std::max(most, bytes);
  }
  Json rows = Json::array();
  for (const PhaseBytes& phase : phases) {
    const auto found = measured.find(phase.name);
    const bool is_measured = found != measured.end();
    rows.push_back(
        {{"name", phase.name},
         {"predicted", format_bytes(phase.bytes)},
         {"measured", is_measured ? format_bytes(found->second) : "–"},
         {"bar", phase_bar(phase.bytes, whole_at(job, "/plan/predicted/held_bytes"), most)},
         {"measured_bar", is_measured ? phase_bar(found->second, whole_at(job, "/measured/held_bytes"), most) : std::string()}});
  }
  return rows;
}

std::string difference_text(int64_t predicted, int64_t measured) {
  if (predicted == measured) return "equal";
  if (predicted == 0) return "not predicted";
  return fmt::format("{:+.1f} %", 100.0 * static_cast<double>(measured - predicted) / static_cast<double>(predicted));
}

// Rows of the comparison that are bytes or seconds, by what they compare.
std::map<std::string, Json> compared(const Json& job, std::string_view unit) {
  std::map<std::string, Json> rows;
  for (const Json& row : list_at(job, "/measured/rows"))
    if (text_at(row, "/unit") == unit) rows[text_at(row, "/what")] = row;
  return rows;
}

Json term_values(const Json& job, KindColours& colours) {
  Json rows = Json::array();
  std::vector<BarPart> predicted_parts, measured_parts;
  int64_t most_predicted = 0, most_measured = 0;
  const std::map<std::string, Json> measured = compared(job, "bytes");
  for (const Json& term : list_at(job, "/plan/terms")) {
    const std::string name = text_at(term, "/class");
    const int64_t bytes = whole_at(term, "/bytes_max");
    const size_t colour = colours.of(name);
    const auto found = measured.find(name);
    if (bytes == 0 && found == measured.end()) continue;
    Json row = {
        {"name", name}, {"predicted", format_bytes(bytes)}, {"measured", "–"}, {"difference", ""}, {"swatch", swatch_svg(colour)}};
    predicted_parts.push_back({colour, bytes});
    most_predicted += bytes;
    if (found != measured.end()) {
      const int64_t got = whole_at(found->second, "/measured");
      row["measured"] = format_bytes(got);
      row["difference"] = difference_text(bytes, got);
      measured_parts.push_back({colour, got});
      most_measured += got;
    }
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return false;
  const int64_t peak = whole_at(job, "/plan/predicted/peak_allocated_bytes"), got = whole_at(job, "/measured/peak_allocated_bytes");
  rows.push_back({{"name", "peak, all at once"},
                  {"predicted", format_bytes(peak)},
                  {"measured", got > 0 ? format_bytes(got) : "–"},
                  {"difference", got > 0 ? difference_text(peak, got) : ""},
                  {"swatch", ""}});
  const int64_t most = std::max(most_predicted, most_measured);
  return {{"rows", rows},
          {"predicted_bar", bar_svg(predicted_parts, most)},
          {"measured_bar", measured_parts.empty() ? "" : bar_svg(measured_parts, most)}};
}

std::string seconds_text(double seconds) { return seconds > 0 ? format_duration(seconds) : "–"; }

std::string need_text(const Json& plan) {
  std::string text = fmt::format("{} of {} on the device", format_bytes(whole_at(plan, "/predicted/device_bytes")),
                                 format_bytes(whole_at(plan, "/predicted/capacity_bytes")));
  if (has_number_at(plan, "/fit_probability"))
    text += fmt::format(", fits with probability {:.0f} %", 100 * number_at(plan, "/fit_probability"));
  return text;
}

// Of the first rank's host, at the end of a run; "": it is not known.
std::string host_text(const Json& job) {
  const Json& moments = list_at(job, "/resources_allocated/memory/moments");
  if (moments.empty() || number_at(moments.back(), "/host/total_gb") <= 0) return "";
  const auto bytes = [&moments](const char* key) { return format_bytes(std::llround(number_at(moments.back(), key) * (1 << 30))); };
  return fmt::format("{} of {} were in use on the host of rank 0 at the end", bytes("/host/used_gb"), bytes("/host/total_gb"));
}

}  // namespace

std::string tuned_text(const Json& job) {
  std::string text;
  const Json tuned = job.value("tuned", Json());
  const Json settings = tuned.is_object() ? tuned.value("settings", Json::object()) : Json::object();
  for (const auto& [path, value] : settings.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", path.substr(path.rfind('.') + 1),
                        value.is_string() ? value.get<std::string>() : value.dump());
  return text;
}

Json memory_values(const Json& job) {
  const Json plan = job.value("plan", Json());
  if (number_at(plan, "/predicted/device_bytes") <= 0) return false;
  KindColours colours(plan);
  const int64_t measured_peak_bytes = whole_at(job, "/measured/peak_allocated_bytes");
  const Json phases = phase_rows(job);
  return {{"sentence", need_text(plan)},
          {"has_phases", !phases.empty()},
          {"phases", phases},
          {"held_swatch", swatch_svg(kHeldColour)},
          {"phase_swatch", swatch_svg(kPhaseColour)},
          {"host", host_text(job)},
          {"measured_peak", measured_peak_bytes > 0 ? format_bytes(measured_peak_bytes) : ""},
          {"predicted_peak", format_bytes(whole_at(plan, "/predicted/peak_allocated_bytes"))},
          {"has_measured_phases", !list_at(job, "/measured/phases").empty()},
          {"peak_instruction", text_at(plan, "/peak_instruction")},
          {"terms", term_values(job, colours)}};
}

Json time_values(const Json& job) {
  const double step_s = number_at(job, "/plan/predicted/step_s");
  if (step_s <= 0) return false;
  Json rows = Json::array();
  double measured_s = number_at(job, "/measured/step_s");
  for (const auto& [what, row] : compared(job, "s")) {
    if (what == "step") {
      measured_s = number_at(row, "/measured");
      continue;
    }
    rows.push_back({{"name", what},
                    {"predicted", seconds_text(number_at(row, "/predicted"))},
                    {"measured", seconds_text(number_at(row, "/measured"))}});
  }
  rows.push_back({{"name", "a whole step"}, {"predicted", seconds_text(step_s)}, {"measured", seconds_text(measured_s)}});
  return {{"rows", rows}};
}

Json plan_notes(const Json& plan) {
  Json notes = Json::array();
  if (const std::string why = text_at(plan, "/recommendation/why"); !why.empty()) notes.push_back(why);
  for (const char* list : {"/warnings", "/assumptions", "/reasons"})
    for (const Json& note : list_at(plan, list))
      if (note.is_string()) notes.push_back(note);
  for (const Json& one : list_at(plan, "/not_supported"))
    notes.push_back(fmt::format("not supported here: {}: {}", text_at(one, "/key"), text_at(one, "/reason")));
  if (notes.empty()) return false;
  return {{"notes", notes}};
}

std::vector<std::string> plan_sentences(const Json& plan) {
  std::vector<std::string> lines;
  if (const std::string summary = text_at(plan, "/summary"); !summary.empty()) lines.push_back(summary);
  lines.push_back(fmt::format("{} parameters; {} {} × {} = {} {}", format_count(whole_at(plan, "/model_parameters")),
                              whole_at(plan, "/nodes"), whole_at(plan, "/nodes") == 1 ? "node" : "nodes",
                              whole_at(plan, "/gpus_per_node"), whole_at(plan, "/nodes") * whole_at(plan, "/gpus_per_node"),
                              text_at(plan, "/gpu")));
  if (number_at(plan, "/predicted/device_bytes") > 0) lines.push_back(need_text(plan));
  if (number_at(plan, "/predicted/step_s") > 0)
    lines.push_back(fmt::format("{} steps of {}, {} in all; {} tokens per second", format_count(whole_at(plan, "/steps")),
                                format_duration(number_at(plan, "/predicted/step_s")),
                                seconds_text(number_at(plan, "/predicted/run_s")),
                                format_count(whole_at(plan, "/predicted/tokens_per_s"))));
  for (const Json& fix : list_at(plan, "/fixes"))
    if (fix.is_string()) lines.push_back(fix.get<std::string>());
  const Json notes = plan_notes(plan);
  if (notes.is_object())
    for (const Json& note : notes["notes"]) lines.push_back(note.get<std::string>());
  return lines;
}

}  // namespace distsetup
