// Whether a command's program takes Megatron-LM's arguments. Internal to lint.
#pragma once
#include "codegen/lint/stage.h"

namespace distsetup::lint {

bool is_megatron(const Stage& stage);

}  // namespace distsetup::lint
