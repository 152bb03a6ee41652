// torchrun, the deepspeed launcher and its hostfiles.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_launchers(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
