// Collectives of GPUs by NCCL's cost model (time/collective.h), of CPUs as latency per hop plus bytes · (n-1)/n over the bus bandwidth
// (nccl-tests' PERFORMANCE.md). Leaves out: message-size ramps of the network, the input pipeline, checkpoints.
#include "planner/native/step_time.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "model/flops.h"
#include "plan/native_program.h"
#include "plan/node_reduction.h"
#include "plan/optimizer.h"
#include "plan/update_layout.h"
#include "planner/native/step_clock.h"
#include "planner/time/collective.h"

namespace distsetup {
namespace {

constexpr double kCopyBase_s = 1e-5;        // of a copy between a GPU and its host
constexpr double kCollectiveBase = 8.4e-6;  // of a transfer between CPU ranks

bool on_gpu(const Plan& plan) { return plan.hardware.accelerator == Accelerator::kCuda; }

// How many nodes a group spans, and how many of its ranks share one.
struct NodeSpan {
  int nodes = 1, per_node = 1;
};

NodeSpan span_of(const Plan& plan, Group group) {
  const int n = group_size(plan.mesh, group);
  const int together = std::clamp(plan.hardware.gpus_per_node / std::max(group_stride(plan.mesh, group), 1), 1, n);
  return {(n + together - 1) / together, together};
}

// Of the rank that has most of a unit's matrices.
double orthogonalize_s(const Plan& plan, const std::vector<HiddenMatrix>& matrices) {
  std::map<int, double> flops;
  double most = 0;
  for (const HiddenMatrix& m : matrices)
    most = std::max(most, flops[m.owner] += orthogonalize_flops(m.rows, m.columns, plan.train.muon.newton_schulz_steps));
  const HardwarePlan& h = plan.hardware;
  return most / (on_gpu(plan) ? h.rates.gemm_flops_per_s : h.gemm_efficiency * h.peak_flops_per_s);
}

// Of Adafactor and Muon between the norm and the step: bytes of the elements that each pass touches.
double update_bytes(const Schedule& s, const Instruction& i) {
  const double shard = static_cast<double>(s.layout->shard_numel);
  switch (i.op) {
    case InstructionOp::kFactorSums: return shard * 8;   // gradient and master
    case InstructionOp::kFactorMeans: return shard * 4;  // gradient
    case InstructionOp::kMomentum: return static_cast<double>(s.layout->units[static_cast<size_t>(i.unit)].shard_numel) * (4 + 8 + 2);
    default: return 0;
  }
}

// What the host does itself with so many elements.
double on_host_s(const Plan& plan, const Schedule& s, const Instruction& i, double elements, double element) {
  double bytes = 0;
  switch (i.op) {
    case InstructionOp::kAccumulate:
      bytes = elements * static_cast<double>(8 + size_bytes(s.buffers[static_cast<size_t>(i.uses[0])].dtype));
      break;
    case InstructionOp::kGradNorm: bytes = elements * 4; break;
    case InstructionOp::kOptimizerStep: bytes = elements * update_bytes_per_parameter(plan.train); break;
    case InstructionOp::kCast: bytes = elements * (4 + element); break;
    default: bytes = update_bytes(s, i); break;
  }
  const double update_s = on_gpu(plan) ? bytes / plan.host.update_bytes_per_s : stream_s(plan.hardware, bytes);
  if (plan.host.disk_bytes_per_s > 0 && i.op == InstructionOp::kFactorSums)  // reads the master alone
    return std::max(update_s, 4 * elements / plan.host.disk_bytes_per_s);
  if (i.op != InstructionOp::kOptimizerStep || plan.host.disk_bytes_per_s == 0) return update_s;
  // Master and states come from the disk and go back, beside the update of what has come.
  const double kept = 4 * elements + static_cast<double>(optimizer_bytes(plan.train, static_cast<int64_t>(elements)));
  return std::max(update_s, 2 * kept / plan.host.disk_bytes_per_s);
}

// Of an instruction that runs no program.
double duration(const Plan& plan, const Schedule& s, const Instruction& i) {
  const HardwarePlan& h = plan.hardware;
  const auto shard = [&](int u) {
    return static_cast<double>(u >= 0 ? s.layout->units[static_cast<size_t>(u)].shard_numel : s.layout->shard_numel);
  };
  const double element = static_cast<double>(size_bytes(i.dtype == Dtype::kCompute ? s.compute : i.dtype));
  if (i.stream == Stream::kHost) return on_host_s(plan, s, i, shard(i.unit), element);
  switch (i.op) {
    case InstructionOp::kCopyToHost:
    case InstructionOp::kCopyToDevice: {
      const auto bytes = static_cast<double>(i.bytes);
      return on_gpu(plan) ? kCopyBase_s + bytes / plan.host.copy_bytes_per_s : stream_s(h, 2 * bytes);
    }
    case InstructionOp::kReduceScatter:
      return i.hop == Hop::kOnly ? collective_s(plan, i.op, i.group, i.bytes) : hop_s(plan, i.group, i.hop, i.node_ranks, i.bytes);
    case InstructionOp::kAllGather:
    case InstructionOp::kAllReduce: return collective_s(plan, i.op, i.group, i.bytes);
    case InstructionOp::kCast: return stream_s(h, shard(i.unit) * (i.dtype == Dtype::kInt8 ? 2 : 4 + element));
    case InstructionOp::kAccumulate: {
      const double ranks = s.layout->units[static_cast<size_t>(i.unit)].shard_ranks;
      return sums_s(plan, i.hop, shard(i.unit), ranks, i.node_ranks, element);
    }
    case InstructionOp::kGradNorm: return stream_s(h, shard(-1) * 4);
    case InstructionOp::kOptimizerStep: {
      const double rest = plan.train.optimizer == kMuon ? 16 * static_cast<double>(state_sizes(*s.layout).rest) : 0;  // moments
      return stream_s(h, shard(-1) * update_bytes_per_parameter(plan.train) + rest);
    }
    default: return stream_s(h, update_bytes(s, i));
  }
}

double tokens_of_rank(const Plan& plan) {
  return static_cast<double>(plan.micro_batch * plan.train.sequence_length / plan.mesh.cp) / plan.mesh.tp;
}

// Of a micro-batch, without what is computed again: where not all parameters are trained, no formula says it.
double listed_flops(const Schedule& s) {
  double flops = 0;
  for (const int variant : s.unit_variant) {
    if (variant < 0) continue;
    const ProgramVariant& v = *s.variants[static_cast<size_t>(variant)];
    for (const std::vector<OpInstance>* ops : {&v.forward, &v.backward})
      for (const OpInstance& op : *ops)
        if (!op.recomputed && !op.op->flops.empty()) flops += static_cast<double>(evaluate(op.op->flops, s.symbols));
  }
  return flops;
}

// Does a unit keep what it reads of the unit below for its backward? Not where that has come from another stage.
bool keeps_x(const Schedule& s, size_t unit) {
  if (unit >= s.kept_offset.size() || s.kept_offset[unit].empty()) return false;
  const int x = s.variants[static_cast<size_t>(s.unit_variant[unit])]->x;
  return x >= 0 && s.kept_offset[unit][static_cast<size_t>(x)] >= 0;
}

// What stage_tensors() depends on: which program runs, which way, and which of its tensors lie in buffers of the stage. Units of a
// variant keep the same tensors but for what they read and leave; micro-batches differ in the buffers alone.
int64_t placement(const Schedule& s, const Instruction& i) {
  const auto unit = static_cast<size_t>(i.unit);
  int64_t key = variant_index(s, i);
  for (const size_t u : {unit, unit + 1}) key = key * 2 + (keeps_x(s, u) ? 1 : 0);
  for (const int b : {i.stage.kept, i.stage.x, i.stage.y, i.stage.dy, i.stage.dx}) key = key * 2 + (b >= 0 ? 1 : 0);
  return key * 4 + (i.op == InstructionOp::kForward ? 2 : 0) + (is_reference(i) ? 1 : 0);
}

}  // namespace

StepList step_list(const Plan& plan, const Schedule& s) {
  StepList list;
  list.segments = s.segments;
  list.num_events = s.num_events;
  list.programs = unit_programs(s);
  list.compute = s.compute;
  const bool is_whole = s.layout->tuning.trains_all();
  list.flops_per_token = is_whole ? token_flops(plan.model, plan.train.sequence_length).train : listed_flops(s) / tokens_of_rank(plan);
  list.host_run_bytes = host_bytes(s) - s.host_arena_bytes;
  for (const Buffer& b : s.buffers) {
    if (b.lifetime != BufferLifetime::kRun || !is_on_device(b)) continue;
    const bool per_sequence = b.name.ends_with("_logps");
    const int64_t tokens = s.symbols.at("T"), per_token = is_fed(b.name) ? b.bytes / tokens : 0;
    list.run_bytes += per_sequence ? 0 : b.bytes - per_token * tokens;
    if (per_sequence) list.run_bytes_per_sequence += size_bytes(b.dtype);
    list.run_bytes_per_token += per_token;
  }
  std::vector<bool> is_message(static_cast<size_t>(s.num_events));  // of each event
  std::vector<std::vector<HiddenMatrix>> matrices;
  if (plan.train.optimizer == kMuon) matrices = hidden_matrices(*s.layout);
  std::map<std::pair<int, std::set<int>>, int> live_variants;
  std::unordered_map<int64_t, int16_t> placements;  // their numbers
  int lowest = s.layout->num_programs;              // of the units that backward reaches
  for (const Instruction& i : s.instructions)
    if (i.op == InstructionOp::kBackward) lowest = std::min(lowest, i.unit);
  list.items.reserve(s.instructions.size());
  for (const Instruction& i : s.instructions) {
    StepList::TimedItem item;
    item.op = i.op;
    item.stream = static_cast<uint8_t>(i.stream);
    item.first_wait = static_cast<int>(list.waits.size());
    item.num_waits = static_cast<int>(i.waits.size());
    list.waits.insert(list.waits.end(), i.waits.begin(), i.waits.end());
    item.signals = i.signals;
    if (is_program(i.op)) {
      item.program = static_cast<int16_t>(variant_index(s, i));
      const auto [placed, unknown] = placements.try_emplace(placement(s, i), 0);
      if (unknown) {
        const auto [known, fresh] = live_variants.try_emplace({item.program, stage_tensors(s, i)}, live_variants.size());
        if (fresh) list.live_variants.push_back({item.program, known->first.second});
        placed->second = static_cast<int16_t>(known->second);
      }
      item.live_variant = placed->second;
      item.ends_backward = i.op == InstructionOp::kBackward && i.unit == lowest;
    } else {
      item.seconds =
          i.op == InstructionOp::kOrthogonalize ? orthogonalize_s(plan, matrices[static_cast<size_t>(i.unit)]) : duration(plan, s, i);
    }
    if (is_transfer(i.op)) {
      is_message[static_cast<size_t>(i.signals)] = true;
      list.message_bytes = i.bytes;
    }
    for (const int event : i.waits) item.waits_for_stage = item.waits_for_stage || is_message[static_cast<size_t>(event)];
    item.live = live_change(s, i);
    list.items.push_back(item);
  }
  return list;
}

double hop_s(const Plan& plan, Group group, Hop hop, int node_ranks, int64_t bytes) {
  const HardwarePlan& h = plan.hardware;
  const bool is_within = hop == Hop::kWithinNode;
  const int n = is_within ? node_ranks : group_size(plan.mesh, group) / node_ranks;
  if (on_gpu(plan)) return all_to_all_s(fabric_of(h), {n, is_within ? n : 1}, static_cast<double>(bytes));
  const double bus = is_within ? h.link_bytes_per_s : h.network_bytes_per_s;
  const double latency = is_within ? h.link_latency_s : h.network_latency_s;
  return kCollectiveBase + (n - 1) * latency + static_cast<double>(bytes) * (n - 1) / n / bus;
}

double sums_s(const Plan& plan, Hop hop, double chunk, double ranks, int node_ranks, double element) {
  switch (hop) {
    case Hop::kOnly: return stream_s(plan.hardware, chunk * (ranks * element + 8));
    case Hop::kWithinNode: return stream_s(plan.hardware, chunk * (ranks * element + ranks / node_ranks * 4));
    case Hop::kAcrossNodes: return stream_s(plan.hardware, chunk * (ranks / node_ranks * 4 + 8));
  }
  return 0;
}

double first_hop_s(const Plan& plan, Group group, double chunk, double element) {
  const int together = node_ranks(plan, group);
  const auto bytes = static_cast<int64_t>(chunk * group_size(plan.mesh, group) * element);
  return together == 0 ? collective_s(plan, InstructionOp::kReduceScatter, group, bytes)
                       : hop_s(plan, group, Hop::kWithinNode, together, bytes);
}

double reduction_s(const Plan& plan, Group group, double chunk, double element) {
  const int n = group_size(plan.mesh, group), together = node_ranks(plan, group);
  const double first_s = first_hop_s(plan, group, chunk, element);
  if (together == 0) return first_s;
  return first_s + hop_s(plan, group, Hop::kAcrossNodes, together, static_cast<int64_t>(chunk * (n / together) * 4));
}

Fabric fabric_of(const HardwarePlan& hardware) {
  Fabric fabric;
  fabric.link_bytes_per_s = hardware.link_bytes_per_s;
  fabric.nic_bytes_per_s = hardware.network_bytes_per_s;
  fabric.domain = hardware.gpus_per_node;
  return fabric;
}

double straggling(const Plan& plan) { return 1 + plan.hardware.rates.straggler * std::log2(static_cast<double>(plan.mesh.world())); }

double collective_s(const Plan& plan, InstructionOp op, Group group, int64_t bytes) {
  const HardwarePlan& h = plan.hardware;
  const int n = group_size(plan.mesh, group);
  if (n == 1) return 0;
  const NodeSpan span = span_of(plan, group);
  const auto message = static_cast<double>(bytes);
  if (on_gpu(plan)) {  // NCCL
    const Fabric fabric = fabric_of(h);
    const GroupSpan ranks{n, span.per_node};
    // Chunks go straight to whom they belong, and the receiver adds them up: no ring takes them over the network once for a node.
    if (op == InstructionOp::kReduceScatter && span.nodes > 1) return all_to_all_s(fabric, ranks, message);
    return op == InstructionOp::kAllReduce ? all_reduce_s(fabric, ranks, message) : all_gather_s(fabric, ranks, message);
  }
  const int rounds = op == InstructionOp::kAllReduce ? 2 : 1;
  // Every rank of a node carries its share of what leaves the node.
  const double bus = span.nodes == 1      ? h.link_bytes_per_s
                     : span.per_node == 1 ? h.network_bytes_per_s
                                          : std::min(h.link_bytes_per_s, h.network_bytes_per_s * span.per_node);
  const double hops_between = span.nodes == 1 ? 0 : span.nodes - 1, hops_inside = n - 1 - hops_between;
  const double bytes_between = op == InstructionOp::kReduceScatter && span.nodes > 1 ? message * (n - span.per_node) / n : 0;
  const double latency = kCollectiveBase + rounds * (hops_inside * h.link_latency_s + hops_between * h.network_latency_s);
  if (bytes_between > 0)  // chunks go straight to whom they belong, inside and outside at once
    return latency + std::max(bytes_between / h.network_bytes_per_s, message * (span.per_node - 1) / n / h.link_bytes_per_s);
  return latency + rounds * message * (n - 1) / n / bus;
}

TimePlan time_plan(const Plan& plan, const StepList& list, double busy_s) {
  TimePlan time;
  time.step_s = busy_s * straggling(plan);
  const auto tokens = static_cast<double>(tokens_per_step(plan));
  time.tokens_per_s = tokens / time.step_s;
  time.tokens_per_s_per_gpu = time.tokens_per_s / plan.mesh.world();
  time.mfu = time.tokens_per_s_per_gpu * list.flops_per_token / plan.hardware.peak_flops_per_s;
  return time;
}

TimePlan step_time(const Plan& plan, const StepList& list, const std::vector<ProgramTime>& times) {
  CHECK(times.size() == list.programs.size());
  StepClock clock(plan, list, times);
  double skipped = 0;  // of segments written once and run several times
  for (size_t s = 0; s < list.segments.size(); ++s) {
    const Segment& segment = list.segments[s];
    const double begin = clock.now();
    const bool middle = s == 1 && list.segments.size() == 3;
    const auto repeat = static_cast<double>(middle ? plan.gradient_accumulation - 2 : segment.repeat);
    for (int i = 0; i < segment.num_instructions; ++i)
      clock.advance(list.items[static_cast<size_t>(segment.first_instruction + i)], repeat);
    skipped += (repeat - 1) * (clock.now() - begin);
  }
  TimePlan time = time_plan(plan, list, clock.now() + skipped);
  time.by_instruction = clock.by_instruction();
  return time;
}

}  // namespace distsetup
