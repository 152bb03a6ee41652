// Unknown options of launchers, and of schedulers in directives.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_options(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
