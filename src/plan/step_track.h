// A step as a track: when each instruction of a rank's list runs, on which stream, and how many bytes are live meanwhile. The planner
// predicts one (planner/native/predicted_track.h), the trainer records one (`--profile`); both have the same instructions, under the
// same names and numbers, and both are written as events of Chrome's trace format (chrome://tracing, Perfetto).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "plan/schedule.h"

namespace distsetup {

// An op of an instruction's program. Seconds count from the beginning of the step.
struct TrackOp {
  std::string name;
  double begin_s = 0, seconds = 0;
  int64_t live_bytes = -1;  // run buffers, live part of the arena and what the op takes for itself; -1: not known
};

struct TrackEntry {
  int instruction = 0;  // its number, as in `distsetup plan --print-schedule`
  std::string name;     // "Forward 3 micro-batch 0", "AllGather 4"
  Stream stream = Stream::kCompute;
  double begin_s = 0, seconds = 0;
  int64_t live_bytes = -1;     // of an instruction without a program
  std::vector<TrackOp> ops;    // they lie in the entry, one after the other
  std::vector<TrackOp> waits;  // of the host, for what the instruction has started; behind the entry
};
using StepTrack = std::vector<TrackEntry>;

// `repetition`: how often the instruction's segment has run before in this step; each time is another micro-batch.
std::string instruction_name(const Instruction& instruction, int64_t repetition);

enum class TrackKind { kPredicted, kExecuted };
// Seconds from the beginning of the step to the end of what ends last.
double track_seconds(const StepTrack& track);
// Adds the events of a step that begins at `begin_s` on rank `process`: a row for each stream, and a counter of bytes.
void add_step_events(const StepTrack& track, TrackKind kind, int64_t step, double begin_s, int process, Json& events);
// Names of the rows; once for a file.
void add_row_names(const StepTrack& track, TrackKind kind, int process, Json& events);

// The file that a launcher leaves for the ranks of a stage: the events of one step, and the digest of the plan.json they are of.
std::string predicted_profile_name(int stage);
Json predicted_trace(const StepTrack& track, int stage, const std::string& plan_digest);

}  // namespace distsetup
