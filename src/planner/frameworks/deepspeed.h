// Memory under DeepSpeed, ZeRO stages 0 to 3.
#pragma once
#include "planner/frameworks/memory.h"

namespace distsetup {

// Elements: reduce_bucket_size where a configuration says nothing (deepspeed/runtime/zero/config.py).
inline constexpr double kReduceBucket = 5e8;

// Of a rank's `share` of what is trained, the elements whose states stay on the device although the optimizer is the host's
// (OffloadPlan::optimizer_ratio).
double optimizer_elements_on_device(const Setup& setup, double share);

MemoryEstimate deepspeed_memory(const Setup& setup, Depth depth);

}  // namespace distsetup
