// Memory of FSDP1, FSDP2, DDP and one GPU.
#pragma once
#include "planner/frameworks/memory.h"

namespace distsetup {

MemoryEstimate fsdp_memory(const Setup& setup, Depth depth);

// kThree walks the first block, one that stands for all in the middle, the last.
enum class Blocks { kThree, kAll };
MemoryEstimate simulate_fsdp(const Setup& setup, Blocks blocks);

}  // namespace distsetup
