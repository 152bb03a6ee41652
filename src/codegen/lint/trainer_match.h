// The arguments of a Hugging Face Trainer beside what DeepSpeed's settings say of the same run. Internal to lint.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_trainer_match(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
