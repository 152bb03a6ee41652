// `distsetup-service --plan-tuned plan WORDS...`, in a job's folder: the plan of a job whose request names settings to search through.
// WORDS with those of the best of the short runs (tuning/runs.json, which `distsetup tune` has ranked) in place of the request's own.
#pragma once
#include <string>
#include <vector>

#include "base/json_fwd.h"

namespace distsetup {

inline constexpr char kTuningFolder[] = "tuning", kTunedRuns[] = "tuning/runs.json", kTunedFile[] = "tuned.json";

// The exit code of `distsetup plan`. Writes tuned.json: {"settings": {path: value}, "runs": how many were trained}.
int plan_tuned(const std::vector<std::string>& words);

// `words` with "--set path=value" for each of `settings`, and without the flags that say the same.
std::vector<std::string> words_with_settings(const std::vector<std::string>& words, const Json& settings);

}  // namespace distsetup
