// A step as a plan predicts it: the clock of `simulate` over the whole list, every micro-batch and every op, with the bytes that are
// live.
#pragma once
#include <vector>

#include "plan/plan.h"
#include "plan/step_track.h"

namespace distsetup {

// Of each pipeline stage; a plan without stages has one track. All ranks of a stage have the same. The last instruction ends where
// plan.time says that the step does.
std::vector<StepTrack> predicted_tracks(const Plan& plan);

}  // namespace distsetup
