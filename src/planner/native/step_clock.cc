#include "planner/native/step_clock.h"

#include <algorithm>

namespace distsetup {

StepClock::StepClock(const Plan& plan, const StepList& list, const std::vector<ProgramTime>& times)
    : plan_(plan),
      list_(list),
      times_(times),
      event_(static_cast<size_t>(list.num_events), 0.0),
      serial_(plan.hardware.accelerator != Accelerator::kCuda) {}

double StepClock::now() const { return *std::max_element(clock_.begin(), clock_.end()); }

double StepClock::busy_s() const {
  return by_op_[static_cast<size_t>(InstructionOp::kForward)] + by_op_[static_cast<size_t>(InstructionOp::kBackward)];
}

double StepClock::duration_of(const StepList::TimedItem& i) const {
  if (i.program < 0) return i.seconds;
  const ProgramTime& time = times_[static_cast<size_t>(i.program)];
  return i.op == InstructionOp::kForward ? time.forward_s : time.backward_s;
}

bool StepClock::can_advance(const StepList::TimedItem& i) const {
  for (int n = 0; n < i.num_waits; ++n)
    if (event_[static_cast<size_t>(list_.waits[static_cast<size_t>(i.first_wait + n)])] == kNotKnown) return false;
  return true;
}

// Transfers of one rank start where the program reaches them: their buffers may take bytes that compute before them still uses.
StepClock::Span StepClock::advance(const StepList::TimedItem& i, double repeat) {
  constexpr auto kCompute = static_cast<size_t>(Stream::kCompute);
  const bool is_message = is_transfer(i.op);
  const size_t stream = serial_ && !is_message ? kCompute : i.stream;  // on CPU one thread computes and takes part in collectives
  const bool is_host = stream == static_cast<size_t>(Stream::kHost);   // waits for nothing but its events
  const double ready = is_host ? clock_[stream] : std::max(clock_[stream], clock_[kCompute]);
  double start = ready;
  for (int n = 0; n < i.num_waits; ++n)
    start = std::max(start, event_[static_cast<size_t>(list_.waits[static_cast<size_t>(i.first_wait + n)])]);
  if (is_message) {
    clock_[stream] = start;
    event_[static_cast<size_t>(i.signals)] = kNotKnown;
    return {start, start};
  }
  if (i.waits_for_stage) by_op_[static_cast<size_t>(InstructionOp::kRecv)] += start - ready;
  double d = duration_of(i);
  by_op_[static_cast<size_t>(i.op)] += d * repeat;
  if (stream == kCompute) {
    double shared = 0;
    for (size_t other = 0; other < clock_.size(); ++other)
      if (other != kCompute) shared = std::max(shared, std::min(start + d, clock_[other]) - std::max(start, busy_since_[other]));
    d += plan_.hardware.rates.contention * shared;
  } else if (start > clock_[stream]) {
    busy_since_[stream] = start;
  }
  clock_[stream] = start + d;
  if (is_host)  // it issues what comes later
    for (double& clock : clock_) clock = std::max(clock, start + d);
  if (i.signals >= 0) event_[static_cast<size_t>(i.signals)] = clock_[stream];
  return {start, start + d};
}

void StepClock::transfer_done(const StepList::TimedItem& i, double begin_s, double at_s) {
  if (begin_s > clock_[i.stream]) busy_since_[i.stream] = begin_s;
  clock_[i.stream] = std::max(clock_[i.stream], at_s);
  event_[static_cast<size_t>(i.signals)] = at_s;
}

std::vector<InstructionTime> StepClock::by_instruction() const {
  std::vector<InstructionTime> out;
  for (size_t op = 0; op < by_op_.size(); ++op)
    if (by_op_[op] > 0) out.push_back({std::string(name(static_cast<InstructionOp>(op))), by_op_[op]});
  return out;
}

}  // namespace distsetup
