// Llama Stack's post_training: run files, requests, calls of its old addresses.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_llama_stack(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
