// Kubernetes manifests and SkyPilot tasks.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_kubernetes(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
