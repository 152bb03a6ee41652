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
    backward_ends_.resize(stages.size());
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

  // Of a further micro-batch: between the first backward of a stage and the one a round later the pipeline is full. No stage is done
  // with a micro-batch sooner than it computes it; those that have no backward, because all that they hold and all below is frozen,
  // compute alone.
  double further_s() const {
    const int64_t m = few_.gradient_accumulation;
    const auto round = static_cast<size_t>(m / pipeline_rounds(few_.mesh.pp, m));
    double most = 0;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<double>& ends = backward_ends_[s];
      if (round < ends.size()) most = std::max(most, (ends[round] - ends[0]) / static_cast<double>(round));
      most = std::max(most, clocks_[s].busy_s() / static_cast<double>(m));
    }
    return most;
  }

  const StepClock& clock(size_t stage) const { return clocks_[stage]; }

 private:
  const std::vector<StepList::TimedItem>& items(size_t stage) const { return stages_[stage].list->items; }

  bool advance(size_t stage) {
    const size_t before = next_[stage];
    for (; next_[stage] < items(stage).size(); ++next_[stage]) {
      const StepList::TimedItem& item = items(stage)[next_[stage]];
      if (!clocks_[stage].can_advance(item)) break;
      const StepClock::Span span = clocks_[stage].advance(item);
      if (spans_ != nullptr) (*spans_)[stage].push_back(span);
      if (is_transfer(item.op)) meet(stage, item);
      if (item.ends_backward) backward_ends_[stage].push_back(clocks_[stage].compute_now());
    }
    return next_[stage] > before;
  }

  struct Side {
    size_t stage = 0;
    const StepList::TimedItem* item = nullptr;
    double started_s = 0;  // its rank may be further by the time that the other side comes
  };
  struct Link {
    std::deque<Side> open;
    double free_s = 0;  // messages go one after the other
  };

  void meet(size_t stage, const StepList::TimedItem& item) {
    const auto stream = static_cast<Stream>(item.stream);
    const bool sends = item.op == InstructionOp::kSend;
    const auto peer = static_cast<size_t>(peer_stage(static_cast<int>(stage), static_cast<int>(stages_.size()), stream));
    Link& link = links_[{sends ? stage : peer, sends ? peer : stage, carries_activations(stream)}];
    const Side own{stage, &item, clocks_[stage].started_s(item)};
    if (link.open.empty() || link.open.front().item->op == item.op) return link.open.push_back(own);
    const Side other = link.open.front();
    link.open.pop_front();
    const double begin = std::max({own.started_s, other.started_s, link.free_s}), done = link.free_s = begin + message_s_;
    for (const Side& side : {own, other}) {
      clocks_[side.stage].transfer_done(*side.item, begin, done);
      if (spans_ != nullptr) (*spans_)[side.stage][static_cast<size_t>(side.item - items(side.stage).data())] = {begin, done};
    }
  }

  const Plan& few_;
  const std::vector<StageList>& stages_;
  std::vector<StepClock> clocks_;
  std::vector<size_t> next_;
  std::map<std::tuple<size_t, size_t, bool>, Link> links_;  // sender, receiver, is it of activations
  std::vector<std::vector<double>> backward_ends_;          // per stage, of its micro-batches
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
  return send_s(fabric_of(h), {2, in_node ? 2 : 1}, bytes);
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
