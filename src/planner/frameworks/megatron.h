// Memory under Megatron: distributed optimizer, TP, SP, PP, CP, EP.
#pragma once
#include "planner/frameworks/memory.h"

namespace distsetup {

MemoryEstimate megatron_memory(const Setup& setup, Depth depth);

}  // namespace distsetup
