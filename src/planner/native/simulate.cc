// Bytes: a walk over units for candidates; for the chosen plan the expanded list (packed_memory.h).
#include "planner/native/simulate.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "plan/activation_writer.h"
#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "plan/expert_parallel.h"
#include "plan/host_writer.h"
#include "plan/optimizer.h"
#include "plan/pipeline_rules.h"
#include "planner/native/packed_memory.h"
#include "planner/native/pipeline_time.h"
#include "planner/report/verdict.h"
#include "planner/resolve/hardware_facts.h"

namespace distsetup {
namespace {

// Middle micro-batches are all like the first of them.
int64_t live_peak(const Plan& plan, const StepList& list, SimulationCache& cache) {
  std::vector<const VariantProfile*> units;
  for (const StepList::LiveVariant& v : list.live_variants)
    units.push_back(&cached_live(plan, list.programs[static_cast<size_t>(v.program)], v.elsewhere, cache));
  int64_t peak = 0;
  LiveWalk walk;
  for (const StepList::TimedItem& i : list.items) {
    const VariantProfile* unit = i.live_variant < 0 ? nullptr : units[static_cast<size_t>(i.live_variant)];
    const PassProfile* pass = unit == nullptr ? nullptr : i.op == InstructionOp::kForward ? &unit->forward : &unit->backward;
    peak = std::max(peak, walk.run(i.live, pass));
  }
  return peak;
}

SimulationCache::StepKey step_key(const Plan& p, int stage) {
  return {static_cast<int>(p.strategy.sharding),
          p.strategy.reshard_after_forward,
          p.strategy.prefetch,
          p.strategy.reductions_in_flight,
          p.strategy.hierarchical_reduction,
          p.mesh.dp_replicate,
          p.mesh.dp_shard,
          split_key(p),
          static_cast<int>(p.recompute.policy),
          p.recompute.every_k,
          p.mesh.pp > 1 ? p.gradient_accumulation : std::min<int64_t>(p.gradient_accumulation, 3),
          {p.mesh.pp, p.strategy.virtual_stages, stage, p.mesh.pp > 1 || has_host_activations(p) ? own_tokens(p) : 0},
          offload_key(p)};
}

// Of one stage, of a plan with few micro-batches.
StageList stage_list(const Plan& plan, int stage, SimulationCache& cache) {
  std::shared_ptr<const StepList>& known = cache.by_step[step_key(plan, stage)];
  if (known == nullptr)
    known = std::make_shared<const StepList>(step_list(plan, compile_schedule(plan, Phase::kStep, stage, LayoutDetail::kSizes)));
  StageList out{known, {}};
  for (const UnitProgram& program : known->programs) out.times.push_back(cached_unit(plan, program, cache).time);
  return out;
}

}  // namespace

Simulation simulate(const Plan& candidate, SimulationCache& cache) {
  const Plan few = candidate.mesh.pp > 1 ? with_few_micro_batches(candidate) : Plan();
  const Plan& plan = candidate.mesh.pp > 1 ? few : candidate;
  Simulation out;
  std::vector<StageList> stages;
  for (int stage = 0; stage < plan.mesh.pp; ++stage) {
    stages.push_back(stage_list(plan, stage, cache));
    const StepList& list = *stages.back().list;
    const int64_t run = list.run_bytes + list.run_bytes_per_token * own_tokens(plan) +
                        list.run_bytes_per_sequence * plan.micro_batch * sequences_per_sample(plan);
    const int64_t live = live_peak(plan, list, cache);
    out.host_run_bytes = std::max(out.host_run_bytes, list.host_run_bytes);
    if (run + live > out.allocated_bytes()) out.run_bytes = run, out.live_peak_bytes = live;
  }
  out.time = plan.mesh.pp > 1 ? pipeline_time(candidate, few, stages) : step_time(plan, *stages[0].list, stages[0].times);
  return out;
}

Simulation simulate(const Plan& candidate) {
  SimulationCache cache;
  return simulate(candidate, cache);
}

int64_t device_bytes(const Plan& plan, const std::vector<int64_t>& run_buffers, int64_t arena_bytes, int64_t workspace_bytes) {
  int64_t allocated = arena_bytes + workspace_bytes;
  for (const int64_t b : run_buffers) allocated += b;
  if (plan.hardware.accelerator == Accelerator::kCpu) return allocated;
  SegmentSizes segments;
  for (const int64_t b : run_buffers) segments.add(b);
  segments.add(arena_bytes);
  segments.add(workspace_bytes);
  return segments.reserved_bytes() + plan.hardware.context_bytes + communicator_bytes(plan);
}

Spread need_spread(Accelerator accelerator) {
  if (accelerator == Accelerator::kCpu) return {};
  return {0.01, 0.033};  // fits with 4 % to spare
}

bool is_host_short(const HardwarePlan& hardware, int64_t host_run_bytes) {
  return hardware.host_memory_bytes > 0 && host_run_bytes * hardware.gpus_per_node > usable_host_bytes(hardware);
}

namespace {

// All that is packed is needed: nothing can be given back.
void settle(Plan& plan, const Spread& spread) {
  MemoryPlan& m = plan.memory;
  const auto need = static_cast<double>(m.device_bytes);
  const Interval of = interval_90(need, spread);
  m.unconstrained_device_bytes = m.device_bytes;
  m.device_low_bytes = static_cast<int64_t>(of.low);
  m.device_high_bytes = static_cast<int64_t>(of.high);
  m.fit_probability = chance_to_fit(need, static_cast<double>(m.capacity_bytes), spread);
  if (offloads_natively(plan) && plan.hardware.host_memory_bytes > 0 && m.host_bytes_per_node > usable_host_bytes(plan.hardware))
    m.fit_probability = 0;
  plan.verdict = verdict_of(m.fit_probability);
}

}  // namespace

void finish(Plan& plan) {
  const Plan few = with_few_micro_batches(plan);
  plan.host.host_bytes = plan.host.disk_bytes = 0;
  std::vector<MemoryPlan::RankClass> classes;
  for (int stage = 0; stage < plan.mesh.pp; ++stage) {
    const Schedule step = compile_expanded(few, Phase::kStep, stage), evaluate = compile_expanded(few, Phase::kEvaluate, stage);
    HostBytes host;
    if (offloads_natively(plan)) host = host_bytes_of_rank(compile_expanded(few, Phase::kLoad, stage), step, evaluate);
    plan.host.host_bytes = std::max(plan.host.host_bytes, host.memory);
    plan.host.disk_bytes = std::max(plan.host.disk_bytes, host.disk);
    MemoryPlan m = packed_memory(plan, step, evaluate);
    classes.push_back(
        {plan.mesh.pp == 1 ? "all ranks" : fmt::format("stage {}", stage), m.device_bytes, plan.mesh.pp > 1 ? host.memory : 0});
    if (stage == 0 || m.device_bytes > plan.memory.device_bytes) plan.memory = std::move(m);
  }
  plan.memory.host_bytes_per_node += plan.host.host_bytes * plan.hardware.gpus_per_node;
  plan.memory.disk_bytes_per_node = plan.host.disk_bytes * plan.hardware.gpus_per_node;
  plan.memory.by_rank_class = std::move(classes);
  plan.time = simulate(plan).time;
  settle(plan, need_spread(plan.hardware.accelerator));
}

}  // namespace distsetup
