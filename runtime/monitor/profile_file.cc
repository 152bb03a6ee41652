#include "runtime/monitor/profile_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json_text.h"
#include "runtime/monitor/failure.h"

namespace distsetup {
namespace fs = std::filesystem;

void ProfileFile::open(const std::string& directory, int rank, int stage, const std::string& plan_digest) {
  path_ = (fs::path(directory) / (rank == 0 ? "profile.json" : fmt::format("profile.rank{}.json", rank))).string();
  rank_ = rank;
  const std::string file = (fs::path(directory) / predicted_profile_name(stage)).string();
  const auto say = [rank](const std::string& why) {
    if (rank == 0)
      fmt::print(stderr, "the profile will have what is executed{}; `distsetup launch --profile` adds what was predicted\n", why);
  };
  const Result<std::string> text = read_file(file);
  if (!text.ok()) return say("");
  Json found = json_from_text(*text);
  const Json digest = found.is_object() ? found.value("/otherData/plan_digest"_json_pointer, Json()) : Json();
  if (digest != Json(plan_digest)) return say(fmt::format(": '{}' is of another plan", file));
  prediction_ = std::move(found);
}

double ProfileFile::add_prediction(int64_t step) {
  if (prediction_.is_null()) return 0;
  constexpr double kMicroseconds = 1e6;
  const bool is_first = events_.empty();
  for (Json event : prediction_.at("traceEvents")) {
    event["pid"] = rank_;
    if (event.at("ph") == "M") {
      if (event.at("name") == "process_name" || !is_first) continue;  // with the execution's
    } else {
      event["ts"] = event.at("ts").get<double>() + begin_s_ * kMicroseconds;
      if (event.at("args").contains("step")) event["args"]["step"] = step;
    }
    events_.push_back(std::move(event));
  }
  return prediction_.at("otherData").at("step_s").get<double>();
}

void ProfileFile::add(int64_t step, const StepTrack& track) {
  if (track.empty()) return;
  const bool is_first = events_.empty();
  const double predicted_s = add_prediction(step);
  if (is_first) add_row_names(track, TrackKind::kExecuted, rank_, events_);
  add_step_events(track, TrackKind::kExecuted, step, begin_s_, rank_, events_);
  begin_s_ += std::max(track_seconds(track), predicted_s);
  const Json trace = {{"traceEvents", events_}, {"displayTimeUnit", "ms"}};
  throw_on_error(write_file_atomic(path_, trace.dump(), Overwrite::kForce).diagnostics, kExitFailed);
}

}  // namespace distsetup
