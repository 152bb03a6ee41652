// One rank's streams on their way through a step: when each instruction starts and ends.
#pragma once
#include <array>
#include <vector>

#include "plan/plan.h"
#include "planner/native/step_time.h"

namespace distsetup {

class StepClock {
 public:
  static constexpr double kNotKnown = -1;  // of a transfer that the other stage has not come to

  StepClock(const Plan& plan, const StepList& list, const std::vector<ProgramTime>& times);

  // Whether all that the item waits for is known.
  bool can_advance(const StepList::TimedItem& item) const;
  struct Span {
    double begin_s = 0, end_s = 0;
  };
  // When the item runs. Seconds count `repeat` times in what by_instruction() says. Transfers between stages start, and end with
  // transfer_done().
  Span advance(const StepList::TimedItem& item, double repeat = 1);
  double started_s(const StepList::TimedItem& transfer) const { return clock_[transfer.stream]; }
  void transfer_done(const StepList::TimedItem& transfer, double begin_s, double at_s);

  double now() const;
  double busy_s() const;  // of forwards and backwards
  double compute_now() const { return clock_[static_cast<size_t>(Stream::kCompute)]; }
  std::vector<InstructionTime> by_instruction() const;

 private:
  double duration_of(const StepList::TimedItem& item) const;

  const Plan& plan_;
  const StepList& list_;
  const std::vector<ProgramTime>& times_;
  std::vector<double> event_;
  const bool serial_;
  std::array<double, kNumStreams> clock_ = {}, busy_since_ = {};
  std::array<double, 32> by_op_ = {};
};

}  // namespace distsetup
