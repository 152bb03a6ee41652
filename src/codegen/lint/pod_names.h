// Names by which pods of a Job look for each other.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_pod_names(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
