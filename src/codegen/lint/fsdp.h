// FSDP wherever it is written: accelerate's fsdp_config, the Trainer's, Axolotl's.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_fsdp(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
