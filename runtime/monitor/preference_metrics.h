// What a step over preference pairs found, under the names that TRL logs (trainer/dpo_trainer.py): means over the pairs of the step.
#pragma once
#include <string>

#include "base/json_fwd.h"
#include "runtime/engine/engine.h"

namespace distsetup {

// Adds rewards/chosen, rewards/rejected, rewards/margins, rewards/accuracies, logps/chosen and logps/rejected.
void add_preference_metrics(const PreferenceNumbers& numbers, Json& line);
// "  margin 0.123  accuracy 75 %" for the line of a step.
std::string preference_text(const PreferenceNumbers& numbers);

}  // namespace distsetup
