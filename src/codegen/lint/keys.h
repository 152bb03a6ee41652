// Unknown keys and values of the wrong type, by templates/_lint/*_keys.yaml.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_keys(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
