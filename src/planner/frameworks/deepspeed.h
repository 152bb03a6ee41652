// Memory under DeepSpeed, ZeRO stages 0 to 3.
#pragma once
#include "planner/frameworks/memory.h"

namespace distsetup {

MemoryEstimate deepspeed_memory(const Setup& setup, Depth depth);

}  // namespace distsetup
