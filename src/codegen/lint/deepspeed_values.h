// DeepSpeed's JSON: "auto", batch arithmetic, and what single keys take.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_deepspeed_values(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
