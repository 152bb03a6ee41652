// simulate: bytes and seconds of one candidate, from its schedule at the unit level. finish: the exact memory of a chosen plan, from
// the expanded schedule (arena, workspace), in the terms that the preview and the trainer's table print.
//   simulate never says more bytes than finish (live bytes against packed arena and workspace): search prunes with it.
#pragma once
#include <vector>

#include "plan/plan.h"
#include "planner/native/simulation_cache.h"
#include "planner/native/step_bound.h"
#include "planner/report/verdict.h"

namespace distsetup {

struct Simulation {
  int64_t run_bytes = 0;        // buffers that live all the run
  int64_t live_peak_bytes = 0;  // span buffers live at once
  int64_t host_run_bytes = 0;   // of the rank that has most in its host's memory all the run
  int64_t allocated_bytes() const { return run_bytes + live_peak_bytes; }
  TimePlan time;
};
Simulation simulate(const Plan& candidate, SimulationCache& cache);
Simulation simulate(const Plan& candidate);

// Bytes on the device for `allocated` in run buffers, one arena and workspace: allocator rounding, context, communicators.
int64_t device_bytes(const Plan& plan, const std::vector<int64_t>& run_buffers, int64_t arena_bytes, int64_t workspace_bytes);

// How far device bytes can be wrong. On a GPU the allocator's and the libraries' share is modelled, not fitted yet, and published
// structural models of it leave a few percent (reserved / active 1.04 in Megatron-LM runs). On CPU the arena is exact and nothing else
// is counted.
Spread need_spread(Accelerator accelerator);

// Whether a host has less memory than its ranks keep there all the run: finish() can only find more.
bool is_host_short(const HardwarePlan& hardware, int64_t host_run_bytes);

// Fills memory, time and verdict. Mesh, strategy, batch and recompute must be decided; CHECKs that validate(plan) has no errors.
void finish(Plan& plan);

}  // namespace distsetup
