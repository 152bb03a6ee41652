// What DeepSpeed's optimizer keeps in a rank's host memory.
#pragma once
#include "planner/frameworks/setup.h"

namespace distsetup {

inline constexpr double kZeroSubGroup = 1e9;  // elements; stage 3's sub_group_size (deepspeed/runtime/zero/config.py)

// Bytes of master, gradient, 16-bit copy and moments on the host, or of the buffers that they pass through on their way to NVMe.
// `master`, `moments`: bytes of the states themselves.
double host_optimizer_bytes(const Setup& setup, double master, double moments);

}  // namespace distsetup
