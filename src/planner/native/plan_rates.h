// What a plan of the bundled trainer is timed with: settled once from the calibration, carried by the plan, and read back.
#pragma once
#include "planner/time/constants.h"

namespace distsetup {

// deterministic: TrainPlan::deterministic.
RatesPlan native_rates(const Gpu& gpu, Dtype compute, bool deterministic, const Calibration& calibration);
TimeConstants time_constants(const RatesPlan& rates);
// What a node's local disk reads and writes for each of its ranks.
double disk_rate(double nvme_bytes_per_s, int ranks_per_node, const Calibration& calibration);
// What a GPU's host reaches for each of a node's ranks. host_memory_bytes_per_s: 0 where it is not known.
HostPlan host_rates(const Gpu& gpu, double host_memory_bytes_per_s, int gpus_per_node, const Calibration& calibration);

}  // namespace distsetup
