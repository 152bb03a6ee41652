// DeepSpeed's JSON: which features go together.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_deepspeed(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
