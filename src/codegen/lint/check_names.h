// Unknown keys of structured files, by the tables of names (templates/_lint/names).
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_names(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
