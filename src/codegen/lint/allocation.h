// What a launcher starts against the machines and GPUs that the job, the manifest or the task asks for. Internal to lint.
#pragma once
#include <optional>
#include <string_view>

#include "codegen/lint/findings.h"

namespace distsetup::lint {

// A number that a manifest of Kubernetes or a task of SkyPilot says once.
std::optional<long long> manifest_count(const Document& d, std::string_view key);

void check_allocation(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
