// verl's command lines. Internal to lint.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_verl(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
