// Which kernel computes attention under a trainer other than the bundled one: trainer.attention.
#pragma once
#include "planner/resolve/resolving.h"

namespace distsetup {

void resolve_attention_kernel(Resolving& r);  // after resolve_program
void resolve_linear_attention(Resolving& r);  // trainer.linear_attention

}  // namespace distsetup
