// Memory of engines of hand-written kernels (llm.c, LLM.Q): every buffer is allocated once, before the first step.
#pragma once
#include "planner/frameworks/memory.h"

namespace distsetup {

MemoryEstimate lean_memory(const Setup& setup, Depth depth);

}  // namespace distsetup
