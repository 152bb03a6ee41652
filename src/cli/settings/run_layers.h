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

// `uses`: presets named beside the file's own (--use). `stage` "" = none.
Result<Spec> spec_of_layers(const Value& run_file, const std::vector<std::string>& uses, const std::string& stage,
                            const Presets& presets);
// Named presets alone.
Result<Spec> spec_of_recipes(const std::vector<std::string>& uses, const Presets& presets, const Location& at);

// "train.steps=50": a setting by its path, over everything but flags of their own.
Diagnostics set_by_path(Spec& spec, const std::string& assignment, const Location& at);

}  // namespace distsetup
