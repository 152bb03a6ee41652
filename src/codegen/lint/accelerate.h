// accelerate's YAML: machines, mesh, the DeepSpeed section.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_accelerate(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
