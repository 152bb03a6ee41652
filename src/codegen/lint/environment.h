// Environment variables, wherever they are set.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_environment(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
