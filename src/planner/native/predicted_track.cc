#include "planner/native/predicted_track.h"

#include <map>
#include <memory>
#include <utility>

#include "base/check.h"
#include "plan/expand.h"
#include "plan/workspace.h"
#include "planner/native/pipeline_time.h"
#include "planner/native/step_clock.h"

namespace distsetup {
namespace {

// An instruction of a list each time that it runs.
struct Occurrence {
  int instruction = 0;
  int64_t repetition = 0;
};

std::vector<Occurrence> in_order(const Schedule& s) {
  std::vector<Occurrence> all;
  for (const Segment& segment : s.segments)
    for (int64_t r = 0; r < segment.repeat; ++r)
      for (int i = 0; i < segment.num_instructions; ++i) all.push_back({segment.first_instruction + i, r});
  return all;
}

class TrackWriter {
 public:
  TrackWriter(const Plan& plan, Schedule schedule) : plan_(plan), schedule_(std::move(schedule)), order_(in_order(schedule_)) {
    stage_.list = std::make_shared<const StepList>(step_list(plan, schedule_));
    for (const UnitProgram& unit : stage_.list->programs)
      stage_.times.push_back(program_time(plan, unit, schedule_.symbols, stage_.list->compute));
  }

  const StageList& stage() const { return stage_; }

  // Without stages: nobody else is waited for.
  std::vector<StepClock::Span> spans() const {
    StepClock clock(plan_, *stage_.list, stage_.times);
    std::vector<StepClock::Span> spans;
    for (const Occurrence& o : order_) spans.push_back(clock.advance(stage_.list->items[static_cast<size_t>(o.instruction)]));
    return spans;
  }

  StepTrack write(const std::vector<StepClock::Span>& spans) {
    CHECK(spans.size() == order_.size(), "{} of {} instructions are timed", spans.size(), order_.size());
    const double scale = straggling(plan_);
    StepTrack track;
    for (size_t n = 0; n < order_.size(); ++n) {
      const Instruction& i = schedule_.instructions[static_cast<size_t>(order_[n].instruction)];
      if (i.num_steps == 0) continue;
      TrackEntry entry;
      entry.instruction = order_[n].instruction;
      entry.name = instruction_name(i, order_[n].repetition);
      entry.stream = i.stream;
      entry.begin_s = spans[n].begin_s * scale;
      entry.seconds = (spans[n].end_s - spans[n].begin_s) * scale;
      if (is_program(i.op))
        add_ops(i, entry);
      else
        entry.live_bytes = live_bytes(i.first_step);
      track.push_back(std::move(entry));
    }
    return track;
  }

 private:
  int64_t live_bytes(int step) const {
    const auto n = static_cast<size_t>(step);
    return run_bytes_ + schedule_.live_bytes[n] + workspace_bytes(schedule_.steps[n], schedule_, plan_.hardware.accelerator);
  }

  const std::vector<double>& ends_of(const Instruction& i) {
    const bool backward = i.op == InstructionOp::kBackward;
    const int variant = variant_index(schedule_, i);
    const auto [known, fresh] = ends_.try_emplace({variant, backward});
    if (fresh)
      known->second =
          op_ends(plan_, stage_.list->programs[static_cast<size_t>(variant)], schedule_.symbols, stage_.list->compute, backward);
    return known->second;
  }

  // Beside communication a pass takes longer than its ops alone: each of them then does.
  void add_ops(const Instruction& i, TrackEntry& entry) {
    const std::vector<double>& ends = ends_of(i);
    CHECK(ends.size() == static_cast<size_t>(i.num_steps), "{} ops of {}", ends.size(), i.num_steps);
    const double scale = ends.back() > 0 ? entry.seconds / ends.back() : 0;
    for (size_t n = 0; n < ends.size(); ++n) {
      const int step = i.first_step + static_cast<int>(n);
      const double begin_s = n == 0 ? 0 : ends[n - 1] * scale;
      entry.ops.push_back(
          {schedule_.steps[static_cast<size_t>(step)].op, entry.begin_s + begin_s, ends[n] * scale - begin_s, live_bytes(step)});
    }
  }

  const Plan& plan_;
  const Schedule schedule_;
  const std::vector<Occurrence> order_;
  const int64_t run_bytes_ = run_bytes(schedule_);
  StageList stage_;
  std::map<std::pair<int, bool>, std::vector<double>> ends_;  // by variant, forward or backward
};

}  // namespace

std::vector<StepTrack> predicted_tracks(const Plan& plan) {
  std::vector<TrackWriter> writers;
  writers.reserve(static_cast<size_t>(plan.mesh.pp));
  for (int stage = 0; stage < plan.mesh.pp; ++stage) writers.emplace_back(plan, compile_expanded(plan, Phase::kStep, stage));
  if (plan.mesh.pp == 1) return {writers[0].write(writers[0].spans())};
  std::vector<StageList> stages;
  for (const TrackWriter& writer : writers) stages.push_back(writer.stage());
  const std::vector<std::vector<StepClock::Span>> spans = pipeline_spans(plan, stages);
  std::vector<StepTrack> tracks;
  for (size_t stage = 0; stage < writers.size(); ++stage) tracks.push_back(writers[stage].write(spans[stage]));
  return tracks;
}

}  // namespace distsetup
