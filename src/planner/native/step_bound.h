// What no simulation of a plan goes below: bytes from states and what is kept between passes; seconds from chains of compute and
// transfers that no order of a list shortens.
#pragma once
#include <cstdint>

#include "plan/plan.h"
#include "planner/native/simulation_cache.h"

namespace distsetup {

// About a microsecond each once the cache knows the programs.
int64_t least_bytes(const Plan& candidate, SimulationCache& cache);
double least_step_s(const Plan& candidate, SimulationCache& cache);

struct StepBound {
  int64_t allocated_bytes = 0;
  double step_s = 0;
};
inline StepBound bound(const Plan& candidate, SimulationCache& cache) {
  return {least_bytes(candidate, cache), least_step_s(candidate, cache)};
}

// Of a pipeline: seconds from the order of its passes, for some tens of microseconds. 0: nothing nearer is known.
double nearer_bound_s(const Plan& candidate, SimulationCache& cache);

// States alone: what no plan of this sharding can do without, in bytes per rank. fp32 master, gradient and what the optimizer
// keeps (AdamW: 16 B per parameter, split over dp_shard × cp × tp; ddp's not over cp) and, where parameters are kept beside the
// master, a compute copy of a tp rank's. Source: ZeRO (arXiv 1910.02054), section 3.1.
int64_t states_bound_bytes(const Plan& plan);
// The same of what a rank has in its host's memory where the optimizer is the host's: master, gradient and what the optimizer keeps.
int64_t host_states_bound_bytes(const Plan& plan);

}  // namespace distsetup
