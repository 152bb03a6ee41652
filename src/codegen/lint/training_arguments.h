// Fields of Hugging Face TrainingArguments.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_training_arguments(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
