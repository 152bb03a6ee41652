#include "runtime/engine/profile.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace distsetup {

Profile::Profile(Device& device) : device_(device) {
  device_.synchronize();
  first_timer_ = device_.start_timer(Stream::kCompute);
  device_.stop_timer(Stream::kCompute, first_timer_);
  first_s_ = now_s();
}

int Profile::at(int index, const Instruction& i, int64_t repetition) {
  Entry entry;
  entry.track.instruction = index;
  entry.track.name = instruction_name(i, repetition);
  entry.track.stream = i.stream;
  entries_.push_back(std::move(entry));
  return int(entries_.size()) - 1;
}

void Profile::begin(std::string_view program_op) {
  Entry& entry = entries_.back();
  const int timer = device_.start_timer(entry.track.stream);
  entry.timed.push_back({{std::string(program_op), now_s() - first_s_, 0, -1}, timer});
}

void Profile::end(int64_t live_bytes) {
  Timed& timed = entries_.back().timed.back();
  device_.stop_timer(entries_.back().track.stream, timed.timer);
  timed.op.seconds = now_s() - first_s_ - timed.op.begin_s;
  timed.op.live_bytes = live_bytes;
}

void Profile::waited(int entry, double seconds) {
  TrackEntry& track = entries_[size_t(entry)].track;
  if (first_timer_ < 0) track.waits.push_back({"wait for " + track.name, now_s() - first_s_ - seconds, seconds, -1});
}

// Two events of one stream measure time to half a microsecond: what follows does not begin before its predecessor's end.
void Profile::settle(Entry& entry, std::vector<double>& stream_ends) const {
  double& last_s = stream_ends[size_t(entry.track.stream)];
  for (Timed& timed : entry.timed) {
    if (timed.timer >= 0) {
      timed.op.begin_s = device_.timer_begin_s(timed.timer, first_timer_);
      timed.op.seconds = device_.timer_s(timed.timer);
    }
    const double end_s = timed.op.begin_s + timed.op.seconds;
    timed.op.begin_s = std::max(timed.op.begin_s, last_s);
    timed.op.seconds = std::max(0.0, end_s - timed.op.begin_s);
    last_s = timed.op.begin_s + timed.op.seconds;
  }
  entry.track.begin_s = entry.timed.front().op.begin_s;
  entry.track.seconds = last_s - entry.track.begin_s;
  if (entry.timed.front().op.name.empty()) return void(entry.track.live_bytes = entry.timed.front().op.live_bytes);
  for (Timed& timed : entry.timed) entry.track.ops.push_back(std::move(timed.op));
}

StepTrack Profile::finish() {
  device_.synchronize();
  StepTrack track;
  std::vector<double> stream_ends(kNumStreams, 0.0);
  for (Entry& entry : entries_) {
    if (entry.timed.empty()) continue;
    settle(entry, stream_ends);
    track.push_back(std::move(entry.track));
  }
  entries_.clear();
  return track;
}

}  // namespace distsetup
