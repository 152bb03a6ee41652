// The layers of a run file: the named presets it uses, the file itself, and one of its stages.
//   use: [recipe_a, recipe_b]     presets/recipes/<name>.yaml, the later over the earlier, both below the file
//   stages: {warmup: {train: …}}  each a part of a run file; --stage NAME puts one over the file
// Each setting keeps the place it was written at, so that `config show --origin` can tell which layer won.
#pragma once
#include <string>
#include <vector>

#include "base/value.h"
#include "model/presets.h"
#include "planner/spec/spec.h"

namespace distsetup {

// Of a run file that is not there (nullptr) every layer is empty.
Result<Spec> spec_of_run_file(const Value* run_file);
// Every stage is checked, also those that do not run. `stage` "" = none.
Result<Spec> spec_of_stage(const Value* run_file, const std::string& stage);
// The presets that the file names, and over them `uses` (--use).
Result<Spec> spec_of_uses(const Value* run_file, const std::vector<std::string>& uses, const Presets& presets);
// Named presets alone, the later over the earlier.
Result<Spec> spec_of_recipes(const std::vector<std::string>& names, const Presets& presets, const Location& at);

// A top-level key that only a run file has.
bool is_of_run_file(const Value::Entry& entry);

}  // namespace distsetup
