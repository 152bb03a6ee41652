// Bytes: a walk over units for candidates; for the chosen plan the expanded list, whose every buffer has a name, a
// class, steps it lives in and a place in the arena.
#include "planner/native/simulate.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "model/count.h"
#include "plan/compile_schedule.h"
#include "plan/expand.h"
#include "plan/workspace.h"
#include "planner/replay/ledger.h"
#include "planner/report/verdict.h"
#include "planner/resolve/hardware_facts.h"

namespace distsetup {
namespace {

constexpr size_t kClasses = kNumBufferClasses;
using ByClass = std::array<int64_t, kClasses>;

size_t index(BufferClass c) { return static_cast<size_t>(c); }

std::vector<int64_t> run_buffer_bytes(const Schedule& s) {
  std::vector<int64_t> bytes;
  for (const Buffer& b : s.buffers)
    if (b.lifetime == BufferLifetime::kRun && b.place == Place::kDevice) bytes.push_back(b.bytes);
  return bytes;
}

int64_t largest_workspace(const Schedule& s, Accelerator accelerator) {
  int64_t most = 0;
  for (const Step& step : s.steps) most = std::max(most, workspace_bytes(step, s, accelerator));
  return most;
}

// Span bytes by class during each step: differences first, then sums.
std::vector<ByClass> span_bytes_by_class(const Schedule& s) {
  std::vector<ByClass> bytes(s.steps.size() + 1, ByClass{});
  for (const Buffer& b : s.buffers) {
    if (b.lifetime == BufferLifetime::kRun || b.overlay_of >= 0 || b.first_step < 0) continue;
    bytes[static_cast<size_t>(b.first_step)][index(b.buffer_class)] += aligned(b.bytes);
    bytes[static_cast<size_t>(b.last_step) + 1][index(b.buffer_class)] -= aligned(b.bytes);
  }
  for (size_t n = 1; n < bytes.size(); ++n)
    for (size_t c = 0; c < kClasses; ++c) bytes[n][c] += bytes[n - 1][c];
  return bytes;
}

// What a reader calls the tensors and buffers that peaks are made of.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"P", "gathered parameters"},
    {"G", "gradients"},
    {"A", "gradient accumulators"},
    {"R", "received gradients"},
    {"x", "block inputs"},
    {"y", "block outputs"},
    {"gu", "gate and up"},
    {"m", "SwiGLU products"},
    {"h1", "normed inputs"},
    {"h1_all", "normed inputs of all tokens"},
    {"h2_all", "normed inputs of the MLP, of all tokens"},
    {"h2", "normed inputs of the MLP"},
    {"kv_all", "keys and values of all context-parallel ranks"},
    {"kv_seq", "keys and values of whole sequences"},
    {"dkv_seq", "gradients of keys and values of whole sequences"},
    {"qkv", "queries, keys, values"},
    {"att", "attention outputs"},
    {"z", "logits"},
    {"dz", "logit gradients"},
    {"dgu", "gradients of gate and up"},
};

// Bytes pass from tensor to tensor in place: the one that holds buffer `b` during `step`.
std::vector<int> holders_at(const Schedule& s, int step) {
  std::vector<int> holder(s.buffers.size());
  for (int b = 0; b < static_cast<int>(s.buffers.size()); ++b) holder[b] = b;
  for (int b = 0; b < static_cast<int>(s.buffers.size()); ++b) {
    const int root = root_buffer(s.buffers, b);
    if (root != b && s.buffers[b].first_step <= step && s.buffers[b].first_step > s.buffers[holder[root]].first_step) holder[root] = b;
  }
  return holder;
}

// "3/y" and "4/y" are one line, "y × 2": at a peak most bytes are many buffers of one kind.
std::vector<PeakBuffer> largest_buffers(const Schedule& s, int step) {
  struct BufferGroup {
    int64_t bytes = 0;
    int count = 0;
    std::string single;
  };
  std::map<std::string, BufferGroup> groups;
  const std::vector<int> holders = holders_at(s, step);
  for (int n = 0; n < static_cast<int>(s.buffers.size()); ++n) {
    const Buffer& b = s.buffers[n];
    if (b.lifetime == BufferLifetime::kRun || b.overlay_of >= 0 || b.first_step > step || b.last_step < step) continue;
    const std::string& shown = s.buffers[holders[n]].name;
    const size_t slash = shown.find('/');
    const std::string kind = slash != std::string::npos ? shown.substr(slash + 1)
                             : b.unit >= 0              ? shown.substr(0, shown.find_first_of("0123456789"))
                                                        : shown;
    BufferGroup& g = groups[kind];
    g.bytes += aligned(b.bytes);
    g.count += 1;
    g.single = shown;
  }
  std::vector<PeakBuffer> out;
  for (const auto& [kind, g] : groups) {
    std::string text = g.count == 1 ? g.single : fmt::format("{} × {}", kind, g.count);
    for (const auto& [known, words] : kWords)
      if (known == kind) text += fmt::format(" ({})", words);
    out.push_back({std::move(text), g.bytes});
  }
  std::stable_sort(out.begin(), out.end(), [](const PeakBuffer& a, const PeakBuffer& b) { return a.bytes > b.bytes; });
  if (out.size() > 3) out.resize(3);
  return out;
}

struct Peak {
  int step = 0;
  int64_t bytes = 0;  // live + workspace
};

Peak find_peak(const Schedule& s, Accelerator accelerator) {
  Peak peak{0, -1};
  for (int n = 0; n < static_cast<int>(s.steps.size()); ++n) {
    const int64_t bytes = s.live_bytes[n] + workspace_bytes(s.steps[n], s, accelerator);
    if (bytes > peak.bytes) peak = {n, bytes};
  }
  return peak;
}

std::string describe_step(const Schedule& s, int n) {
  const Step& step = s.steps[n];
  const Instruction& i = s.instructions[step.instruction];
  std::string text(name(i.op));
  if (step.unit >= 0) text += fmt::format(" {}", step.unit);
  if (step.program_op != nullptr) text += "/" + step.op;
  if (i.micro_batch >= 0) text += fmt::format(" micro-batch {}", i.micro_batch);
  return text;
}

void fill_terms(MemoryPlan& m, const Schedule& s, const Peak& peak, int64_t max_workspace) {
  const std::vector<ByClass> span = span_bytes_by_class(s);
  for (size_t c = 0; c < kClasses; ++c) {
    const auto which = static_cast<BufferClass>(c);
    const int64_t always = run_bytes(s, which);
    MemoryTerm term{std::string(name(which)), always, -1, ""};
    if (which == BufferClass::kWorkspace) {
      term.bytes_at_peak = term.bytes_max = max_workspace;
      term.phase = s.instructions[s.steps[peak.step].instruction].phase;
    } else {
      term.bytes_at_peak += span[static_cast<size_t>(peak.step)][c];
      for (size_t n = 0; n < s.steps.size(); ++n) {
        if (always + span[n][c] <= term.bytes_max) continue;
        term.bytes_max = always + span[n][c];
        term.phase = s.instructions[s.steps[n].instruction].phase;
      }
    }
    if (term.bytes_max > 0) m.terms.push_back(std::move(term));
  }
  const int64_t packing = m.arena_bytes - s.live_bytes[peak.step];
  m.terms.push_back({"arena packing", packing, packing, s.instructions[s.steps[peak.step].instruction].phase});
}

void fill_phases(MemoryPlan& m, const Schedule& step, int64_t evaluate_bytes, Accelerator accelerator) {
  std::map<std::string, int64_t, std::less<>> by_phase;
  by_phase["load"] = m.run_bytes;
  for (size_t n = 0; n < step.steps.size(); ++n) {
    int64_t& most = by_phase[step.instructions[step.steps[n].instruction].phase];
    most = std::max(most, m.run_bytes + step.live_bytes[n] + workspace_bytes(step.steps[n], step, accelerator));
  }
  by_phase["evaluate"] = evaluate_bytes;
  by_phase["save"] = m.run_bytes;
  for (const std::string_view phase : replay::kPhaseNames)
    if (const auto it = by_phase.find(phase); it != by_phase.end()) m.by_phase.push_back({it->first, it->second});
  CHECK(m.by_phase.size() == by_phase.size(), "a phase without a place in the timeline");
}

// fp32 master and two moments; file headers, some hundred bytes per tensor, are left out.
int64_t checkpoint_bytes(int64_t parameters) { return 12 * parameters; }

TimePlan time_of(const Plan& plan, const Schedule& s) {
  const StepList list = step_list(plan, s);
  std::vector<ProgramTime> times;
  for (const UnitProgram& unit : list.programs) times.push_back(program_time(plan, unit, s.symbols, s.compute));
  return step_time(plan, list, times);
}

using CachedUnit = SimulationCache::UnitCost;

// Of a micro-batch, on one rank.
int64_t own_tokens(const Plan& plan) { return plan.micro_batch * plan.train.sequence_length / plan.mesh.cp; }
// Ranks that run a program together.
SimulationCache::SplitKey split_key(const Plan& plan) {
  const ProgramSplit split = split_of(plan);
  return {split.tp, split.cp, split.cp == 1 ? 0 : static_cast<int>(split.cp_method)};
}
// That split the states of a tensor-parallel rank.
int64_t state_shards(const Plan& plan) { return group_size(plan.mesh, shard_group(plan.mesh, plan.strategy.sharding)); }

constexpr double kLeastOptimizerBytesPerParameter = kOptimizerBytesPerParameter + 4;  // the norm of the gradients reads them

CachedUnit make_unit(const Plan& plan, const StepList& list, size_t program) {
  const UnitProgram& unit = list.programs[program];
  const Symbols symbols = native_symbols(plan.model, plan.micro_batch, plan.train.sequence_length, split_of(plan));
  return {program_time(plan, unit, symbols, list.compute), profile(*unit.variant, symbols, list.compute)};
}

const CachedUnit& cached_unit(const Plan& plan, const StepList& list, size_t program, SimulationCache& cache) {
  static const CachedUnit kUnused;
  if (list.programs[program].num_units == 0) return kUnused;  // every_k:1 has no block without recomputation
  const auto [it, fresh] = cache.by_variant.try_emplace({list.programs[program].variant->name, split_key(plan), own_tokens(plan)});
  if (fresh) it->second = make_unit(plan, list, program);
  return it->second;
}

// Middle micro-batches are all like the first of them.
int64_t live_peak(const StepList& list, const std::vector<const CachedUnit*>& units) {
  int64_t peak = 0;
  LiveWalk walk;
  for (const StepList::TimedItem& i : list.items) {
    const VariantProfile* unit = i.program < 0 ? nullptr : &units[static_cast<size_t>(i.program)]->live;
    const PassProfile* pass = unit == nullptr ? nullptr : i.op == InstructionOp::kForward ? &unit->forward : &unit->backward;
    peak = std::max(peak, walk.run(i.live, pass));
  }
  return peak;
}

SimulationCache::ComputeCost compute_of(const Plan& plan, SimulationCache& cache) {
  std::shared_ptr<const StepList>& known =
      cache.by_policy[{static_cast<int>(plan.recompute.policy), plan.recompute.every_k, split_key(plan)}];
  if (known == nullptr) known = std::make_shared<const StepList>(step_list(plan, compile_schedule(plan, Phase::kStep)));
  SimulationCache::ComputeCost c;
  for (size_t program = 0; program < known->programs.size(); ++program) {
    const CachedUnit& unit = cached_unit(plan, *known, program, cache);
    const int64_t count = known->programs[program].num_units;
    c.kept_bytes += count * (unit.live.forward.exit_bytes - unit.live.forward.entry_bytes);
    c.seconds += static_cast<double>(count) * (unit.time.forward_s + unit.time.backward_s);
  }
  return c;
}

SimulationCache::StepKey step_key(const Plan& p) {
  return {static_cast<int>(p.strategy.sharding),
          p.strategy.reshard_after_forward,
          p.strategy.prefetch,
          p.mesh.dp_replicate,
          p.mesh.dp_shard,
          split_key(p),
          static_cast<int>(p.recompute.policy),
          p.recompute.every_k,
          std::min<int64_t>(p.gradient_accumulation, 3)};
}

}  // namespace

StepBound bound(const Plan& plan, SimulationCache& cache) {
  const auto [it, fresh] = cache.by_compute.try_emplace(
      {static_cast<int>(plan.recompute.policy), plan.recompute.every_k, split_key(plan), own_tokens(plan)});
  if (fresh) it->second = compute_of(plan, cache);
  const SimulationCache::ComputeCost& c = it->second;
  const auto parameters = static_cast<double>(count_parameters(plan.model).total);
  const double shard = parameters / static_cast<double>(state_shards(plan) * plan.mesh.tp);
  const double compute =
      static_cast<double>(plan.gradient_accumulation) * c.seconds + stream_s(plan.hardware, shard * kLeastOptimizerBytesPerParameter);
  // Sums in another order than the simulation's: what rounding may add is taken off.
  return {states_bound_bytes(plan) + c.kept_bytes, compute * straggling(plan) * (1 - 1e-9)};
}

Simulation simulate(const Plan& candidate, SimulationCache& cache) {
  std::shared_ptr<const StepList>& known = cache.by_step[step_key(candidate)];
  if (known == nullptr) known = std::make_shared<const StepList>(step_list(candidate, compile_schedule(candidate, Phase::kStep)));
  const StepList& list = *known;
  std::vector<const CachedUnit*> units;
  std::vector<ProgramTime> times;
  for (size_t program = 0; program < list.programs.size(); ++program) {
    units.push_back(&cached_unit(candidate, list, program, cache));
    times.push_back(units.back()->time);
  }
  Simulation out;
  out.run_bytes = list.run_bytes + list.run_bytes_per_token * own_tokens(candidate);
  out.live_peak_bytes = live_peak(list, units);
  out.time = step_time(candidate, list, times);
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
  const int64_t parameters = (count_parameters(plan.model).total + plan.mesh.tp - 1) / plan.mesh.tp;
  const int64_t shards = state_shards(plan);
  const int64_t element = plan.precision.compute == Dtype::kBf16 ? 2 : 4;
  const auto split = [&](int64_t bytes) { return (bytes + shards - 1) / shards; };
  const bool gathers = plan.strategy.sharding == Sharding::kZero3;
  const bool uses_master = shards == 1 && element == 4;
  int64_t bytes = split(16 * parameters) + (gathers || uses_master ? 0 : element * parameters);
  if (plan.train.method == "dpo") bytes += gathers ? split(element * parameters) : element * parameters;
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
  plan.verdict = verdict_of(m.fit_probability);
}

}  // namespace

void finish(Plan& plan) {
  const Accelerator accelerator = plan.hardware.accelerator;
  const Schedule step = compile_expanded(plan, Phase::kStep);
  const Schedule evaluate = compile_expanded(plan, Phase::kEvaluate);
  const Peak peak = find_peak(step, accelerator);
  MemoryPlan m;
  m.run_bytes = run_bytes(step);
  m.arena_bytes = std::max(step.arena_bytes, evaluate.arena_bytes);
  m.live_bytes = step.live_bytes[peak.step];
  m.workspace_bytes = largest_workspace(step, accelerator);
  m.peak_allocated_bytes = m.run_bytes + m.arena_bytes + m.workspace_bytes;
  m.device_bytes = device_bytes(plan, run_buffer_bytes(step), m.arena_bytes, m.workspace_bytes);
  const bool cpu = accelerator == Accelerator::kCpu;
  m.peak_reserved_bytes = cpu ? m.peak_allocated_bytes : m.device_bytes - plan.hardware.context_bytes - communicator_bytes(plan);
  m.capacity_bytes = plan.hardware.memory_bytes;
  m.peak_instruction = describe_step(step, peak.step);
  m.peak_buffers = largest_buffers(step, peak.step);
  fill_terms(m, step, peak, m.workspace_bytes);
  fill_phases(m, step, m.run_bytes + evaluate.live_peak_bytes + largest_workspace(evaluate, accelerator), accelerator);
  m.by_rank_class = {{"all ranks", m.device_bytes}};
  m.checkpoint_bytes = checkpoint_bytes(step.layout->numel);
  // Saving copies the shards of all ranks of a node to the host; on CPU they are there already.
  m.host_bytes_per_node = cpu ? 0 : 12 * step.layout->shard_numel * plan.hardware.gpus_per_node;
  plan.memory = std::move(m);
  plan.time = time_of(plan, step);
  settle(plan, need_spread(accelerator));
}

void finish_by_bound(Plan& plan) {
  const int64_t parameters = count_parameters(plan.model).total, shards = state_shards(plan);
  const int64_t element = plan.precision.compute == Dtype::kBf16 ? 2 : 4;
  const bool gathers = plan.strategy.sharding == Sharding::kZero3;
  const auto split = [&](int64_t bytes) { return (bytes + shards - 1) / shards; };
  MemoryPlan m;
  const auto add = [&](BufferClass which, int64_t bytes, const std::string& note = "") {
    if (bytes > 0) m.terms.push_back({std::string(name(which)) + note, bytes, bytes, "load"});
  };
  const int64_t reference = plan.train.method == "dpo" ? (gathers ? split(element * parameters) : element * parameters) : 0;
  const int64_t bound = states_bound_bytes(plan);
  const int64_t master = split(4 * parameters), gradient = split(4 * parameters),
                copy = gathers || (shards == 1 && element == 4) ? 0 : element * parameters;
  add(BufferClass::kParameterShard, master);
  add(BufferClass::kGatheredParameter, copy);
  add(BufferClass::kGradient, gradient);
  add(BufferClass::kOptimizerState, bound - master - gradient - copy - reference);
  add(BufferClass::kParameterShard, reference, " of the frozen reference");
  m.run_bytes = m.peak_allocated_bytes = m.peak_reserved_bytes = bound;
  m.device_bytes = bound + plan.hardware.context_bytes + communicator_bytes(plan);
  m.capacity_bytes = plan.hardware.memory_bytes;
  m.peak_instruction = "load (states alone)";
  m.by_phase = {{"load", bound}};
  m.by_rank_class = {{"all ranks", m.device_bytes}};
  m.checkpoint_bytes = checkpoint_bytes(parameters);
  plan.memory = std::move(m);
  plan.time = {};
  // A bound that does not fit refuses; one that fits proves nothing.
  const bool is_possible = plan.memory.device_bytes <= plan.memory.capacity_bytes;
  plan.memory.unconstrained_device_bytes = plan.memory.device_bytes;
  plan.memory.fit_probability = is_possible ? 0.5 : 0;
  plan.verdict = is_possible ? Verdict::kTight : Verdict::kDoesNotFit;
}

}  // namespace distsetup
