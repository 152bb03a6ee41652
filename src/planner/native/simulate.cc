// Bytes: a walk over units for candidates; for the chosen plan the expanded list (packed_memory.h).
#include "planner/native/simulate.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "model/count.h"
#include "plan/activation_writer.h"
#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "plan/expert_parallel.h"
#include "plan/host_writer.h"
#include "plan/layout_cache.h"
#include "plan/optimizer.h"
#include "plan/pipeline_rules.h"
#include "planner/native/packed_memory.h"
#include "planner/native/pipeline_time.h"
#include "planner/report/verdict.h"
#include "planner/resolve/hardware_facts.h"

namespace distsetup {
namespace {

using CachedUnit = SimulationCache::UnitCost;

// Of a micro-batch, on one rank.
int64_t own_tokens(const Plan& plan) {
  return plan.micro_batch * sequences_per_sample(plan) * plan.train.sequence_length / plan.mesh.cp;
}
// Ranks that run a program together.
SimulationCache::SplitKey split_key(const Plan& plan) {
  const ProgramSplit split = split_of(plan);
  return {split.tp, split.cp, split.cp == 1 ? 0 : static_cast<int>(split.cp_method), split.ep, split.loss_chunks};
}
// That split the states of a tensor-parallel rank.
int64_t state_shards(const Plan& plan) { return group_size(plan.mesh, shard_group(plan.mesh, plan.strategy.sharding)); }

constexpr double kNormBytesPerParameter = 4;  // it reads the gradients

CachedUnit make_unit(const Plan& plan, const StepList& list, size_t program, const std::set<int>& elsewhere) {
  const UnitProgram& unit = list.programs[program];
  const Symbols symbols = native_symbols(plan.model, plan.micro_batch, plan.train.sequence_length, split_of(plan));
  return {program_time(plan, unit, symbols, list.compute), profile(*unit.variant, symbols, list.compute, elsewhere)};
}

const CachedUnit& cached_unit(const Plan& plan, const StepList& list, size_t program, SimulationCache& cache,
                              const std::set<int>& elsewhere = {}) {
  static const CachedUnit kUnused;
  if (list.programs[program].num_units == 0) return kUnused;  // every_k:1 has no block without recomputation
  const auto [it, fresh] =
      cache.by_variant.try_emplace({list.programs[program].variant->name, split_key(plan), own_tokens(plan), elsewhere});
  if (fresh) it->second = make_unit(plan, list, program, elsewhere);
  return it->second;
}

// Middle micro-batches are all like the first of them.
int64_t live_peak(const Plan& plan, const StepList& list, SimulationCache& cache) {
  std::vector<const VariantProfile*> units;
  for (const StepList::LiveVariant& v : list.live_variants)
    units.push_back(&cached_unit(plan, list, static_cast<size_t>(v.program), cache, v.elsewhere).live);
  int64_t peak = 0;
  LiveWalk walk;
  for (const StepList::TimedItem& i : list.items) {
    const VariantProfile* unit = i.live_variant < 0 ? nullptr : units[static_cast<size_t>(i.live_variant)];
    const PassProfile* pass = unit == nullptr ? nullptr : i.op == InstructionOp::kForward ? &unit->forward : &unit->backward;
    peak = std::max(peak, walk.run(i.live, pass));
  }
  return peak;
}

// The same on a single stage, which has all programs.
Plan without_stages(const Plan& plan) {
  Plan one = plan;
  one.hardware.nodes = 1;
  one.hardware.gpus_per_node = plan.mesh.world() / plan.mesh.pp;
  one.mesh.pp = one.strategy.virtual_stages = 1;
  return one;
}

SimulationCache::ComputeCost compute_of(const Plan& plan, SimulationCache& cache) {
  std::shared_ptr<const StepList>& known =
      cache.by_policy[{static_cast<int>(plan.recompute.policy), plan.recompute.every_k, split_key(plan)}];
  if (known == nullptr) {
    const Plan one = without_stages(plan);
    known = std::make_shared<const StepList>(step_list(one, compile_schedule(one, Phase::kStep)));
  }
  SimulationCache::ComputeCost c;
  for (size_t program = 0; program < known->programs.size(); ++program) {
    const CachedUnit& unit = cached_unit(plan, *known, program, cache);
    const int64_t count = known->programs[program].num_units;
    c.kept_bytes += count * (unit.live.forward.exit_bytes - unit.live.forward.entry_bytes);
    c.seconds += static_cast<double>(count) * (unit.time.forward_s + unit.time.backward_s);
  }
  return c;
}

SimulationCache::StepKey step_key(const Plan& p, int stage) {
  return {static_cast<int>(p.strategy.sharding),
          p.strategy.reshard_after_forward,
          p.strategy.prefetch,
          p.strategy.reductions_in_flight,
          p.mesh.dp_replicate,
          p.mesh.dp_shard,
          split_key(p),
          static_cast<int>(p.recompute.policy),
          p.recompute.every_k,
          p.mesh.pp > 1 ? p.gradient_accumulation : std::min<int64_t>(p.gradient_accumulation, 3),
          {p.mesh.pp, p.strategy.virtual_stages, stage, p.mesh.pp > 1 || has_host_activations(p) ? own_tokens(p) : 0},
          9 * static_cast<int>(p.offload.optimizer) + 3 * static_cast<int>(p.offload.parameters) +
              static_cast<int>(p.offload.activations)};
}

struct LeastTransfers {
  double gather_s = 0, reduce_s = 0;  // how long these streams are busy at least
};

// Every parameter gathered, and its gradient reduced, as often as the sharding asks, in one message instead of one for each unit.
// Leaves out what a backward gathers again, frozen parameters, pipelines, and experts of which ranks have parts of their own
// (`trained` are the others).
LeastTransfers least_transfers(const Plan& plan, int64_t trained) {
  LeastTransfers out;
  if (plan.mesh.pp > 1) return out;
  const Sharding sharding = plan.strategy.sharding;
  const Group shards = shard_group(plan.mesh, sharding), replicas = replica_group(plan.mesh, sharding);
  const double whole = static_cast<double>(trained) / plan.mesh.tp, element = static_cast<double>(size_bytes(plan.precision.compute));
  const auto seconds = [&](InstructionOp op, Group group, double bytes_each) {
    return collective_s(plan, op, group, static_cast<int64_t>(whole * bytes_each));
  };
  const int n = group_size(plan.mesh, shards);
  if (n > 1) {
    const auto micro_batches = static_cast<double>(plan.gradient_accumulation);
    const bool regathers = sharding == Sharding::kZero3 && plan.strategy.reshard_after_forward;
    out.gather_s = (regathers ? micro_batches : 1) * seconds(InstructionOp::kAllGather, shards, element);
    out.reduce_s = (sharding == Sharding::kZero1 ? 1 : micro_batches) * seconds(InstructionOp::kReduceScatter, shards, element);
  }
  out.reduce_s += seconds(InstructionOp::kAllReduce, replicas, 4.0 / n);
  return out;
}

}  // namespace

StepBound bound(const Plan& plan, SimulationCache& cache) {
  const auto [it, fresh] = cache.by_compute.try_emplace(
      {static_cast<int>(plan.recompute.policy), plan.recompute.every_k, split_key(plan), own_tokens(plan)});
  if (fresh) it->second = compute_of(plan, cache);
  const SimulationCache::ComputeCost& c = it->second;
  const bool shards_nothing = plan.strategy.sharding == Sharding::kDdp;  // but experts, perhaps
  const ParameterNumbers all = parameter_numbers(plan);
  const auto parameters =
      static_cast<double>(shards_nothing ? numel_of_rank(all.trained, all.trained_experts, plan.mesh.ep) : all.trained);
  const double shard = parameters / static_cast<double>(state_shards(plan) * plan.mesh.tp * plan.mesh.pp);
  const double update_bytes = update_bytes_per_parameter(plan.train) + kNormBytesPerParameter;
  // Of a pipeline the mean of its stages, without what they keep; without what waits on the host, nearly all of it.
  const int64_t kept_bytes = plan.mesh.pp == 1 && !has_host_activations(plan) ? c.kept_bytes : 0;
  const double compute = static_cast<double>(plan.gradient_accumulation) * c.seconds / plan.mesh.pp +
                         (has_host_optimizer(plan) ? 0 : stream_s(plan.hardware, shard * update_bytes));
  const LeastTransfers transfers = least_transfers(plan, all.trained - all.trained_experts);
  double busy_s = std::max({compute, transfers.gather_s, transfers.reduce_s});
  // Parameters that every rank holds are gathered when all of them have been updated.
  if (plan.strategy.sharding != Sharding::kZero3 && keeps_elements(plan.train.optimizer) && !has_host_optimizer(plan))
    busy_s = std::max(compute, transfers.reduce_s) + transfers.gather_s;
  // Sums in another order than the simulation's: what rounding may add is taken off.
  return {states_bound_bytes(plan) + kept_bytes, busy_s * straggling(plan) * (1 - 1e-9)};
}

namespace {

// Of one stage, of a plan with few micro-batches.
StageList stage_list(const Plan& plan, int stage, SimulationCache& cache) {
  std::shared_ptr<const StepList>& known = cache.by_step[step_key(plan, stage)];
  if (known == nullptr) known = std::make_shared<const StepList>(step_list(plan, compile_schedule(plan, Phase::kStep, stage)));
  StageList out{known, {}};
  for (size_t program = 0; program < known->programs.size(); ++program)
    out.times.push_back(cached_unit(plan, *known, program, cache).time);
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

int64_t states_bound_bytes(const Plan& plan) {
  const int64_t parts = int64_t{plan.mesh.tp} * plan.mesh.pp;  // the largest stage has the mean at least
  const ParameterNumbers all = parameter_numbers(plan);
  const bool shards_nothing = plan.strategy.sharding == Sharding::kDdp;  // but experts, perhaps
  const int64_t held = numel_of_rank(all.trained, all.trained_experts, plan.mesh.ep);
  const bool gathers = plan.strategy.sharding == Sharding::kZero3;
  const int64_t held_frozen = gathers ? all.frozen : numel_of_rank(all.frozen, all.frozen_experts, plan.mesh.ep);
  const int64_t whole = (held + parts - 1) / parts, frozen = (held_frozen - all.quantized) / parts;
  const int64_t parameters = shards_nothing ? whole : (all.trained + parts - 1) / parts;
  const auto records = static_cast<int64_t>(bytes_of(Dtype::kNf4Double) * static_cast<double>(all.quantized)) / parts;
  const int64_t shards = state_shards(plan);
  const int64_t element = size_bytes(plan.precision.compute);
  const auto split = [&](int64_t bytes) { return (bytes + shards - 1) / shards; };
  const bool is_on_host = has_host_optimizer(plan), uses_master = shards == 1 && element == 4 && !is_on_host;
  const bool come_from_host = has_host_parameters(plan);
  int64_t bytes = is_on_host ? split(gathers && !come_from_host ? element * parameters : 0)
                             : split(8 * parameters + optimizer_bytes(plan.train, parameters));
  if (come_from_host) return bytes;
  if (!gathers && !uses_master) bytes += element * whole;
  const int64_t frozen_bytes = element * (frozen + all.reference / parts) + records;
  bytes += gathers ? frozen_bytes / shards : frozen_bytes;
  return bytes;
}

Spread need_spread(Accelerator accelerator) {
  if (accelerator == Accelerator::kCpu) return {};
  return {0.01, 0.033};  // fits with 4 % to spare
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
  const auto usable = static_cast<int64_t>(kUsableHostShare * static_cast<double>(plan.hardware.host_memory_bytes));
  if (offloads_natively(plan) && plan.hardware.host_memory_bytes > 0 && m.host_bytes_per_node > usable) m.fit_probability = 0;
  plan.verdict = verdict_of(m.fit_probability);
}

}  // namespace

void finish(Plan& plan) {
  const Plan few = with_few_micro_batches(plan);
  std::vector<HostBytes> hosts;  // of each stage
  plan.host.host_bytes = plan.host.disk_bytes = 0;
  for (int stage = 0; stage < plan.mesh.pp && offloads_natively(plan); ++stage) {
    hosts.push_back(host_bytes_of_rank(plan, stage));
    plan.host.host_bytes = std::max(plan.host.host_bytes, hosts.back().memory);
    plan.host.disk_bytes = std::max(plan.host.disk_bytes, hosts.back().disk);
  }
  std::vector<MemoryPlan::RankClass> classes;
  for (int stage = 0; stage < plan.mesh.pp; ++stage) {
    MemoryPlan m = packed_memory(plan, compile_expanded(few, Phase::kStep, stage), compile_expanded(few, Phase::kEvaluate, stage));
    classes.push_back({plan.mesh.pp == 1 ? "all ranks" : fmt::format("stage {}", stage), m.device_bytes,
                       plan.mesh.pp > 1 && !hosts.empty() ? hosts[static_cast<size_t>(stage)].memory : 0});
    if (stage == 0 || m.device_bytes > plan.memory.device_bytes) plan.memory = std::move(m);
  }
  plan.memory.by_rank_class = std::move(classes);
  plan.time = simulate(plan).time;
  settle(plan, need_spread(plan.hardware.accelerator));
}

}  // namespace distsetup
