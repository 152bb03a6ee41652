// The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, "complete", "counter" and "metadata"
// events.
#include "plan/step_track.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/json.h"

namespace distsetup {
namespace {

constexpr double kMicroseconds = 1e6;

// Of a stream, prediction and execution lie next to each other.
int row(Stream stream, TrackKind kind) { return 1 + 2 * static_cast<int>(stream) + (kind == TrackKind::kExecuted ? 1 : 0); }

class StepEvents {
 public:
  StepEvents(TrackKind kind, int64_t step, double begin_s, int process, Json& events)
      : kind_(kind), step_(step), begin_s_(begin_s), process_(process), events_(events) {}

  void add(const TrackEntry& entry) {
    slice(entry.name, entry, entry.begin_s, entry.seconds, entry.live_bytes);
    for (const TrackOp& op : entry.ops) slice(op.name, entry, op.begin_s, op.seconds, op.live_bytes);
    for (const TrackOp& wait : entry.waits) slice(wait.name, entry, wait.begin_s, wait.seconds, wait.live_bytes);
  }

 private:
  void slice(const std::string& name, const TrackEntry& entry, double begin_s, double seconds, int64_t live_bytes) {
    Json args = {{"step", step_}, {"instruction", entry.instruction}};
    const bool is_predicted = kind_ == TrackKind::kPredicted;
    if (live_bytes >= 0) {
      args["live_bytes"] = live_bytes;
      events_.push_back({{"name", is_predicted ? "live bytes predicted" : "live bytes"},
                         {"cat", is_predicted ? "predicted" : "executed"},
                         {"ph", "C"},
                         {"ts", (begin_s_ + begin_s) * kMicroseconds},
                         {"pid", process_},
                         {"tid", 0},
                         {"args", {{"bytes", live_bytes}}}});
    }
    events_.push_back({{"name", name},
                       {"cat", is_predicted ? "predicted" : "executed"},
                       {"ph", "X"},
                       {"ts", (begin_s_ + begin_s) * kMicroseconds},
                       {"dur", seconds * kMicroseconds},
                       {"pid", process_},
                       {"tid", row(entry.stream, kind_)},
                       {"args", std::move(args)}});
  }

  const TrackKind kind_;
  const int64_t step_;
  const double begin_s_;
  const int process_;
  Json& events_;
};

void add_metadata(const char* what, int process, int thread, Json args, Json& events) {
  events.push_back({{"name", what}, {"ph", "M"}, {"ts", 0}, {"pid", process}, {"tid", thread}, {"args", std::move(args)}});
}

}  // namespace

std::string instruction_name(const Instruction& i, int64_t repetition) {
  std::string text(name(i.op));
  if (i.unit >= 0) text += fmt::format(" {}", i.unit);
  if (i.micro_batch >= 0) text += fmt::format(" micro-batch {}", i.micro_batch + repetition);
  return text;
}

double track_seconds(const StepTrack& track) {
  double end_s = 0;
  for (const TrackEntry& entry : track) {
    end_s = std::max(end_s, entry.begin_s + entry.seconds);
    for (const TrackOp& wait : entry.waits) end_s = std::max(end_s, wait.begin_s + wait.seconds);
  }
  return end_s;
}

void add_step_events(const StepTrack& track, TrackKind kind, int64_t step, double begin_s, int process, Json& events) {
  StepEvents adder(kind, step, begin_s, process, events);
  for (const TrackEntry& entry : track) adder.add(entry);
}

void add_row_names(const StepTrack& track, TrackKind kind, int process, Json& events) {
  add_metadata("process_name", process, 0, {{"name", fmt::format("rank {}", process)}}, events);
  add_metadata("process_sort_index", process, 0, {{"sort_index", process}}, events);
  std::set<Stream> streams;
  for (const TrackEntry& entry : track) streams.insert(entry.stream);
  for (const Stream stream : streams) {
    const std::string text = fmt::format("{}{}", name(stream), kind == TrackKind::kPredicted ? ", predicted" : "");
    add_metadata("thread_name", process, row(stream, kind), {{"name", text}}, events);
    add_metadata("thread_sort_index", process, row(stream, kind), {{"sort_index", row(stream, kind)}}, events);
  }
}

std::string predicted_profile_name(int stage) {
  return stage == 0 ? "profile.predicted.json" : fmt::format("profile.predicted.stage{}.json", stage);
}

Json predicted_trace(const StepTrack& track, int stage, const std::string& plan_digest) {
  Json events = Json::array();
  add_row_names(track, TrackKind::kPredicted, stage, events);
  add_step_events(track, TrackKind::kPredicted, 0, 0, stage, events);
  return {{"traceEvents", std::move(events)},
          {"displayTimeUnit", "ms"},
          {"otherData", {{"plan_digest", plan_digest}, {"step_s", track_seconds(track)}}}};
}

}  // namespace distsetup
