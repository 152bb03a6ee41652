// Files of trainers: Lightning, Axolotl, LLaMA-Factory, OpenRLHF, NeMo Automodel, torchtitan.
#pragma once
#include "codegen/lint/findings.h"

namespace distsetup::lint {

void check_trainers(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
