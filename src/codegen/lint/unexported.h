// Environment variables that a script sets for itself alone.
#pragma once
#include "codegen/lint/findings.h"
#include "codegen/lint/lint_setup.h"

namespace distsetup::lint {

void check_unexported(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
