// What a job's plan predicted and what its run measured, as values of its page.
#pragma once
#include "base/json.h"

namespace distsetup {

// What a search through settings has found: "learning_rate 1e-3, beta 0.3"; "": there was none.
std::string tuned_text(const Json& job);
// {"sentence", "phases", "terms", …}; false where the plan says nothing of memory.
Json memory_values(const Json& job);
// {"rows": [{"name", "predicted", "measured"}]}; false without a prediction.
Json time_values(const Json& job);
// Sentences of the plan: what was assumed, what is not supported, what is recommended; false: none.
Json plan_notes(const Json& plan);
// What a plan says, a sentence each, for the form.
std::vector<std::string> plan_sentences(const Json& plan);

}  // namespace distsetup
