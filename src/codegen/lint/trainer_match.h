// The arguments of a Hugging Face Trainer beside what DeepSpeed's settings say of the same run. Internal to lint.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

// Whether a script's flags are fields of TrainingArguments, as far as they tell.
bool takes_training_arguments(const LaunchStage& script);

void check_trainer_match(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
