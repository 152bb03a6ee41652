// Which instructions of a step can be recorded once and replayed: on a GPU the work of a micro-batch as one CUDA graph, which the
// host launches with one call instead of one for each kernel. What a step does to the parameters (the sum of the losses, the norm, the
// optimizer) stays outside: the host decides there whether the step is taken, and at which rate.
// Recorded work sees the same addresses in each replay, and no number of the host's: tokens and scales are copied to the device
// before.
#pragma once
#include <string>

#include "plan/plan.h"
#include "plan/schedule.h"

namespace distsetup {

// Of a segment: the instruction behind the last one that can be recorded; the segment's first: none can.
int recorded_end(const Schedule& schedule, const Segment& segment);
// Why the bundled trainer cannot record a plan's micro-batches, whatever it runs on; empty: it can.
std::string recording_problem(const Plan& plan);

}  // namespace distsetup
