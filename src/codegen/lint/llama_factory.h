// LLaMA-Factory's file. Internal to lint.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_llama_factory(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
