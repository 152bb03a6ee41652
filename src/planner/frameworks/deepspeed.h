// Memory under DeepSpeed, ZeRO stages 0 to 3.
#pragma once
#include "planner/frameworks/memory.h"

namespace distsetup {

// Elements: reduce_bucket_size where a configuration says nothing (deepspeed/runtime/zero/config.py).
inline constexpr double kReduceBucket = 5e8;

MemoryEstimate deepspeed_memory(const Setup& setup, Depth depth);

}  // namespace distsetup
