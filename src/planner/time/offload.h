// Seconds that a step spends on what lies in its host's memory. All GPUs of a node share that memory and its cores.
#pragma once
#include "planner/frameworks/setup.h"
#include "planner/time/constants.h"

namespace distsetup {

// One way over the host link: the bytes that a layer saves for backward, of `tokens` tokens of `hidden` values.
double activation_copy_s(const Setup& s, const TimeConstants& c, double tokens, double hidden);
// At which a rank's parameters come up from host memory, or from the node's drives.
double parameters_bytes_per_s(const Setup& s, const TimeConstants& c);
// The optimizer's step for the `moved` parameters of a rank that are updated on the host: gradients come down, parameters go up.
double host_update_s(const Setup& s, const TimeConstants& c, double moved);
// What sums of gradients in host memory add to a step of several micro-batches, where each backward takes `backward_s`.
double host_sums_s(const Setup& s, const TimeConstants& c, double moved, double backward_s);
// Of a copy that compute of `compute_s` runs beside, what is left to wait for.
double exposed_copy_s(const Setup& s, double copy_s, double compute_s);

}  // namespace distsetup
