// GPUs that Ray is told of, against those that its pods ask for.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_ray_pods(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
