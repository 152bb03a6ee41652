// Seconds of a pipeline's step: all stages on their way together, each waiting for what the others send.
#pragma once
#include <memory>
#include <vector>

#include "planner/native/step_clock.h"
#include "planner/native/step_time.h"

namespace distsetup {

struct StageList {
  std::shared_ptr<const StepList> list;
  std::vector<ProgramTime> times;  // per program of the list
};

// stages: the lists of `few` (with_few_micro_batches of the plan), one for each stage. A micro-batch that `few` leaves out takes what
// one takes while the pipeline is full. by_instruction is the first stage's.
TimePlan pipeline_time(const Plan& plan, const Plan& few, const std::vector<StageList>& stages);

// When each item of each stage's list runs; `plan` has all its micro-batches in these lists.
std::vector<std::vector<StepClock::Span>> pipeline_spans(const Plan& plan, const std::vector<StageList>& stages);

// A message between neighbouring stages.
double message_s(const Plan& plan, double bytes);

}  // namespace distsetup
