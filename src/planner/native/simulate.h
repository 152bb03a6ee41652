// simulate: bytes and seconds of one candidate, from its schedule at the unit level. finish: the exact memory of a chosen plan, from
// the expanded schedule (arena, workspace), in the terms that the preview and the trainer's table print.
//   simulate never says more bytes than finish (live bytes against packed arena and workspace): search prunes with it.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/plan.h"
#include "plan/schedule.h"
#include "planner/native/step_time.h"
#include "planner/report/verdict.h"

namespace distsetup {

// What candidates of one search share: model, method, what is trained, sequence length, precision and hardware (but for the number of
// nodes) are the same for all of them. A step is compiled once for all micro-batches of a mesh and strategy, a unit's program once for
// each micro-batch.
struct SimulationCache {
  struct UnitCost {
    ProgramTime time;
    VariantProfile live;
  };
  using SplitKey = std::tuple<int, int, int, int, int>;  // tp, cp and its method, ep, chunks of the loss
  // Stages, chunks of each, which, and tokens of a micro-batch: what lives as long as the step is of a stage's list alone.
  using StageKey = std::tuple<int, int, int, int64_t>;
  // What a list depends on.
  using StepKey = std::tuple<int, bool, int, int, int, int, SplitKey, int, int, int64_t, StageKey, bool>;
  // Variant name, tokens of a rank's micro-batch, tensors that are not counted.
  std::map<std::tuple<std::string, SplitKey, int64_t, std::set<int>>, UnitCost> by_variant;
  std::map<StepKey, std::shared_ptr<const StepList>> by_step;
  struct ComputeCost {
    int64_t kept_bytes = 0;  // by a forward, until the head has run
    double seconds = 0;      // of a micro-batch, forward and backward
  };
  std::map<std::tuple<int, int, SplitKey, int64_t>, ComputeCost> by_compute;  // recompute policy, every_k, tokens of a micro-batch
  // Any list with these recomputations: for its programs.
  std::map<std::tuple<int, int, SplitKey>, std::shared_ptr<const StepList>> by_policy;
};

struct Simulation {
  int64_t run_bytes = 0;        // buffers that live all the run
  int64_t live_peak_bytes = 0;  // span buffers live at once
  int64_t allocated_bytes() const { return run_bytes + live_peak_bytes; }
  TimePlan time;
};
Simulation simulate(const Plan& candidate, SimulationCache& cache);
Simulation simulate(const Plan& candidate);

// What no simulation goes below: states and what a forward keeps; compute and the optimizer without a transfer. <= 100 ns once the
// cache knows the programs.
struct StepBound {
  int64_t allocated_bytes = 0;
  double step_s = 0;
};
StepBound bound(const Plan& candidate, SimulationCache& cache);

// Bytes on the device for `allocated` in run buffers, one arena and workspace: allocator rounding, context, communicators.
int64_t device_bytes(const Plan& plan, const std::vector<int64_t>& run_buffers, int64_t arena_bytes, int64_t workspace_bytes);

// States alone: what no plan of this sharding can do without, in bytes per rank. fp32 master, gradient and what the optimizer
// keeps (AdamW: 16 B per parameter, split over dp_shard × cp × tp; ddp's not over cp) and, where parameters are kept beside the
// master, a compute copy of a tp rank's. Source: ZeRO (arXiv 1910.02054), section 3.1.
int64_t states_bound_bytes(const Plan& plan);

// How far device bytes can be wrong. On a GPU the allocator's and the libraries' share is modelled, not fitted yet, and published
// structural models of it leave a few percent (reserved / active 1.04 in Megatron-LM runs). On CPU the arena is exact and nothing else
// is counted.
Spread need_spread(Accelerator accelerator);

// Fills memory, time and verdict. Mesh, strategy, batch and recompute must be decided; CHECKs that validate(plan) has no errors.
void finish(Plan& plan);

}  // namespace distsetup
