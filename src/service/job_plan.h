// `distsetup-service --plan-job plan WORDS...`, in a job's folder: the plan that is run, with what is known only now. Where settings
// were searched through, those of the best of the short runs (tuning/runs.json, which `distsetup tune` has ranked) stand in place of
// the request's own. Where the prepared set holds something out, the checkpoint with the smallest loss on it is kept, whatever its
// age: it is the one that is exported.
#pragma once
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace distsetup {

inline constexpr char kTuningFolder[] = "tuning", kTunedRuns[] = "tuning/runs.json", kTunedFile[] = "tuned.json";

// The exit code of `distsetup plan`. After a search writes tuned.json: {"settings": {path: value}, "runs": how many were trained}.
int plan_job(std::vector<std::string> words);

// `words` with "--set path=value" for each of `settings`, and without the flags that say the same.
std::vector<std::string> words_with_settings(const std::vector<std::string>& words, const Json& settings);

}  // namespace distsetup
