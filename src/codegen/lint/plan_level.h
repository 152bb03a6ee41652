// Rules that hold for every trainer: sizes that multiply, divide and fit.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_plan_level(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
