#include "planner/native/pipeline_time.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "base/check.h"
#include "plan/pipeline.h"
#include "planner/time/collective.h"

namespace distsetup {
namespace {

class PipelineClock {
 public:
  // spans: filled with when each item of each stage runs; null: nobody asks.
  PipelineClock(const Plan& few, const std::vector<StageList>& stages, std::vector<std::vector<StepClock::Span>>* spans = nullptr)
      : few_(few), stages_(stages), next_(stages.size()), spans_(spans) {
    for (const StageList& s : stages) clocks_.emplace_back(few, *s.list, s.times);
    while (measured_ + 1 < stages.size() && !turns_back(*stages[measured_].list)) ++measured_;
    message_s_ = message_s(few, static_cast<double>(stages.front().list->message_bytes));
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < stages_.size(); ++s) moved |= advance(s);
    }
    for (size_t s = 0; s < stages_.size(); ++s) CHECK(next_[s] == items(s).size(), "stage {} waits for ever", s);
  }

  double step_s() const {
    double most = 0;
    for (const StepClock& clock : clocks_) most = std::max(most, clock.now());
    return most;
  }

  // Of a further micro-batch: between the first backward of the first stage that has one and the one a round later the pipeline is
  // full. No stage is done with a micro-batch sooner than it computes it.
  double further_s() const {
    const int64_t m = few_.gradient_accumulation;
    const auto round = static_cast<size_t>(m / pipeline_rounds(few_.mesh.pp, m));
    double most = round < backward_ends_.size() ? (backward_ends_[round] - backward_ends_[0]) / static_cast<double>(round) : 0;
    for (const StepClock& clock : clocks_) most = std::max(most, clock.busy_s() / static_cast<double>(m));
    return most;
  }

  const StepClock& clock(size_t stage) const { return clocks_[stage]; }

 private:
  // Not where all that a stage has, and all below it, is frozen.
  static bool turns_back(const StepList& list) {
    return std::any_of(list.items.begin(), list.items.end(), [](const StepList::TimedItem& i) { return i.ends_backward; });
  }

  const std::vector<StepList::TimedItem>& items(size_t stage) const { return stages_[stage].list->items; }

  bool advance(size_t stage) {
    const size_t before = next_[stage];
    for (; next_[stage] < items(stage).size(); ++next_[stage]) {
      const StepList::TimedItem& item = items(stage)[next_[stage]];
      if (!clocks_[stage].can_advance(item)) break;
      const StepClock::Span span = clocks_[stage].advance(item);
      if (spans_ != nullptr) (*spans_)[stage].push_back(span);
      if (is_transfer(item.op)) meet(stage, item);
      if (stage == measured_ && item.ends_backward) backward_ends_.push_back(clocks_[stage].compute_now());
    }
    return next_[stage] > before;
  }

  struct Side {
    size_t stage = 0;
    const StepList::TimedItem* item = nullptr;
  };

  void meet(size_t stage, const StepList::TimedItem& item) {
    const auto stream = static_cast<Stream>(item.stream);
    const bool sends = item.op == InstructionOp::kSend;
    const auto peer = static_cast<size_t>(peer_stage(static_cast<int>(stage), static_cast<int>(stages_.size()), stream));
    std::deque<Side>& open = open_[{sends ? stage : peer, sends ? peer : stage, carries_activations(stream)}];
    if (open.empty() || (open.front().item->op == item.op)) return open.push_back({stage, &item});
    const Side other = open.front();
    open.pop_front();
    const double done = std::max(clocks_[stage].started_s(item), clocks_[other.stage].started_s(*other.item)) + message_s_;
    for (const Side& side : {Side{stage, &item}, other}) {
      clocks_[side.stage].transfer_done(*side.item, done);
      if (spans_ != nullptr)
        (*spans_)[side.stage][static_cast<size_t>(side.item - items(side.stage).data())] = {done - message_s_, done};
    }
  }

  const Plan& few_;
  const std::vector<StageList>& stages_;
  std::vector<StepClock> clocks_;
  std::vector<size_t> next_;
  std::map<std::tuple<size_t, size_t, bool>, std::deque<Side>> open_;  // sender, receiver, is it of activations
  size_t measured_ = 0;                                                // the first stage that has a backward
  std::vector<double> backward_ends_;                                  // of its micro-batches
  double message_s_ = 0;
  std::vector<std::vector<StepClock::Span>>* spans_;
};

}  // namespace

std::vector<std::vector<StepClock::Span>> pipeline_spans(const Plan& plan, const std::vector<StageList>& stages) {
  std::vector<std::vector<StepClock::Span>> spans(stages.size());
  PipelineClock(plan, stages, &spans).run();
  return spans;
}

double message_s(const Plan& plan, double bytes) {
  const HardwarePlan& h = plan.hardware;
  const Mesh& m = plan.mesh;
  const bool in_node = 2 * m.dp_replicate * m.dp_shard * m.cp * m.tp <= h.gpus_per_node;
  if (h.accelerator == Accelerator::kCpu)
    return in_node ? h.link_latency_s + bytes / h.link_bytes_per_s : h.network_latency_s + bytes / h.network_bytes_per_s;
  Fabric fabric;
  fabric.link_bytes_per_s = h.link_bytes_per_s;
  fabric.nic_bytes_per_s = h.network_bytes_per_s;
  fabric.domain = h.gpus_per_node;
  return send_s(fabric, {2, in_node ? 2 : 1}, bytes);
}

TimePlan pipeline_time(const Plan& plan, const Plan& few, const std::vector<StageList>& stages) {
  PipelineClock clock(few, stages);
  clock.run();
  const int64_t further = plan.gradient_accumulation - few.gradient_accumulation;
  const double times = static_cast<double>(plan.gradient_accumulation) / static_cast<double>(few.gradient_accumulation);
  const double busy_s = clock.step_s() + static_cast<double>(further) * clock.further_s();
  TimePlan time = time_plan(plan, *stages.front().list, busy_s);
  time.by_instruction = clock.clock(0).by_instruction();
  double waits_s = busy_s;  // what its own work leaves
  for (InstructionTime& i : time.by_instruction) {
    const bool is_each = i.op == name(InstructionOp::kForward) || i.op == name(InstructionOp::kBackward);
    if (is_each || i.op == name(InstructionOp::kAccumulate)) i.seconds *= times;
    if (i.op != name(InstructionOp::kRecv) && i.op != name(InstructionOp::kReduceScatter) && i.op != name(InstructionOp::kAllGather))
      waits_s -= i.seconds;
  }
  for (InstructionTime& i : time.by_instruction)
    if (i.op == name(InstructionOp::kRecv)) i.seconds = std::max(i.seconds, waits_s);
  return time;
}

}  // namespace distsetup
