// What DeepSpeed's optimizer keeps in a rank's host memory, what stays on the device, and what gradients pass through on their way.
#pragma once
#include "planner/frameworks/setup.h"

namespace distsetup {

inline constexpr double kZeroSubGroup = 1e9;  // elements; stage 3's sub_group_size (deepspeed/runtime/zero/config.py)

// Bytes of master, gradient, 16-bit copy and moments on the host, or of the buffers that they pass through on their way to NVMe.
// `master`, `moments`: bytes of the states themselves.
double host_optimizer_bytes(const Setup& setup, double master, double moments);

// Of a rank's `share` of what is trained, the elements whose states stay on the device although the optimizer is the host's
// (OffloadPlan::optimizer_ratio).
double optimizer_elements_on_device(const Setup& setup, double share);

// On the device, while the gradient of a weight of so many elements leaves for the host; 0 where it stays.
double leaving_gradient_bytes(const Setup& setup, double elements);

}  // namespace distsetup
