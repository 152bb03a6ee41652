// Options whose value is a variable that the script sets nowhere, where it sets one that is spelled nearly the same.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_unset_values(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
