// Options whose value is a variable that the script leaves empty.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_empty_values(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
