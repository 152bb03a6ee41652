// What `--profile` puts beside the execution: a step as the plan predicts it, in a file for each pipeline stage, which ranks merge
// into theirs (runtime/monitor/profile_file.h). Written before the ranks start: a run that is killed has lost nothing.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "plan/plan.h"

namespace distsetup {

// The words that go to the trainer: do they ask for a profile, and for a run?
bool asks_for_profile(const std::vector<std::string>& trainer_arguments);

// plan_text: plan.json's bytes, whose digest tells the ranks that the prediction is of their plan.
Diagnostics write_predicted_profile(const Plan& plan, const std::string& plan_text, const std::string& folder);

}  // namespace distsetup
