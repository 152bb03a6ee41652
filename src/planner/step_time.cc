// Sources: GEMM and attention rates as sustained shares of the peak (hardware constants of the plan); everything else moves its bytes
// at 0.8 of the memory bandwidth; collectives of GPUs by NCCL's cost model (time/collective.h), of CPUs as latency per hop plus bytes
// · (n-1)/n over the bus bandwidth (nccl-tests' PERFORMANCE.md). Leaves out: wave quantisation of GEMMs, message-size ramps of the
// network, stragglers, the input pipeline, checkpoints.
#include "planner/step_time.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "planner/time/collective.h"

namespace distsetup {
namespace {

constexpr double kMemoryEfficiency = 0.8;
constexpr double kKernelLaunch = 4e-6, kCpuOpOverhead = 2e-6;  // seconds an op takes at least
constexpr double kCollectiveBase = 8.4e-6;                     // of a transfer between CPU ranks
constexpr double kOptimizerBytesPerParameter = 28;             // AdamW fused: read and write master and moments, read the gradient
// While a transfer runs beside compute, both share memory bandwidth and multiprocessors: 5 % (A100) to 20 % (H100) slower.
constexpr double kContention = 0.10;

double memory_s(const HardwarePlan& h, double bytes) { return bytes / (kMemoryEfficiency * h.memory_bytes_per_s); }

int unit_of_variant(const Schedule& s, int variant) {
  const auto it = std::find(s.unit_variant.begin(), s.unit_variant.end(), variant);
  return it == s.unit_variant.end() ? -1 : static_cast<int>(it - s.unit_variant.begin());
}

double slot_bytes(const Schedule& s, int unit, const ProgramVariant& v, int index) {
  const int own = static_cast<int>(v.slots.size() - v.program->borrowed_slots.size());
  for (const Slot& slot : s.layout.units[index < own ? unit : 0].slots) {
    if (slot.name != v.slots[index]) continue;
    double n = static_cast<double>(size_bytes(s.compute));
    for (const int64_t dim : slot.shape) n *= static_cast<double>(dim);
    return n;
  }
  return 0;
}

double op_s(const Plan& plan, const Schedule& s, int unit, const ProgramVariant& v, const OpInstance& instance) {
  const HardwarePlan& h = plan.hardware;
  const Op& op = *instance.op;
  double bytes = 0;
  const auto count = [&](const Operand& o) {
    if (o.kind == Operand::Kind::kTensor) bytes += static_cast<double>(bytes_of(*v.tensors[o.index].decl, s.symbols, s.compute));
    const bool rows_only =
        op.kind == OpKind::kEmbedding && o.kind == Operand::Kind::kParameter;  // a lookup reads T rows, counted as y
    if ((o.kind == Operand::Kind::kParameter && !rows_only) || o.kind == Operand::Kind::kGradient)
      bytes += slot_bytes(s, unit, v, o.index);
  };
  for (const Operand& o : instance.reads) count(o);
  for (const Operand& o : instance.writes) count(o);
  const double flops = op.flops.empty() ? 0 : static_cast<double>(evaluate(op.flops, s.symbols));
  const double efficiency = op.kind == OpKind::kAttention ? h.attention_efficiency : h.gemm_efficiency;
  const double overhead = h.accelerator == Accelerator::kCpu ? kCpuOpOverhead : kKernelLaunch;
  return overhead + std::max(flops / (efficiency * h.peak_flops_per_s), memory_s(h, bytes));
}

// How many nodes a group spans, and how many of its ranks share one.
struct Span {
  int nodes = 1, per_node = 1;
};

Span span_of(const Plan& plan, Group group) {
  const int n = group_size(plan.mesh, group), per_node = plan.hardware.gpus_per_node;
  // dp_shard ranks lie next to each other; dp_replicate ranks are dp_shard apart.
  const int stride = group == Group::kDpReplicate ? plan.mesh.dp_shard : 1;
  const int together = std::clamp(per_node / std::max(stride, 1), 1, n);
  return {(n + together - 1) / together, together};
}

class StepClock {
 public:
  StepClock(const Plan& plan, const Schedule& s, const std::vector<ProgramTime>& times)
      : plan_(plan), s_(s), times_(times), event_(static_cast<size_t>(s.num_events), 0.0) {}

  TimePlan run() {
    double skipped = 0;  // of segments written once and run several times
    for (const Segment& segment : s_.segments) {
      const double begin = now();
      repeat_ = static_cast<double>(segment.repeat);
      for (int i = 0; i < segment.num_instructions; ++i) advance(s_.instructions[segment.first_instruction + i]);
      skipped += (repeat_ - 1) * (now() - begin);
    }
    TimePlan time;
    time.step_s = now() + skipped;
    const double tokens = static_cast<double>(plan_.train.global_batch * plan_.train.sequence_length);
    time.tokens_per_s = tokens / time.step_s;
    time.tokens_per_s_per_gpu = time.tokens_per_s / plan_.mesh.world();
    time.mfu =
        time.tokens_per_s_per_gpu * token_flops(plan_.model, plan_.train.sequence_length).train / plan_.hardware.peak_flops_per_s;
    for (size_t op = 0; op < by_op_.size(); ++op)
      if (by_op_[op] > 0) time.by_instruction.push_back({std::string(name(static_cast<InstructionOp>(op))), by_op_[op]});
    return time;
  }

 private:
  double now() const { return *std::max_element(clock_.begin(), clock_.end()); }

  double duration(const Instruction& i) const {
    const HardwarePlan& h = plan_.hardware;
    const auto shard = [&](int u) { return static_cast<double>(u >= 0 ? s_.layout.units[u].shard_numel : s_.layout.shard_numel); };
    const double element = static_cast<double>(size_bytes(i.dtype == Dtype::kCompute ? s_.compute : i.dtype)),
                 ranks = plan_.mesh.dp_shard;
    switch (i.op) {
      case InstructionOp::kForward: return times_[s_.unit_variant[i.unit]].forward_s;
      case InstructionOp::kBackward: return times_[s_.unit_variant[i.unit]].backward_s;
      case InstructionOp::kAllGather:
      case InstructionOp::kReduceScatter:
      case InstructionOp::kAllReduce: return collective_s(plan_, i.op, i.group, i.bytes);
      case InstructionOp::kCast: return memory_s(h, shard(i.unit) * (4 + element));
      case InstructionOp::kAccumulate: return memory_s(h, shard(i.unit) * (ranks * element + 8));
      case InstructionOp::kGradNorm: return memory_s(h, shard(-1) * 4);
      case InstructionOp::kOptimizerStep: return memory_s(h, shard(-1) * kOptimizerBytesPerParameter);
      default: return 0;
    }
  }

  // Transfers of one rank start where the program reaches them: their buffers may take bytes that compute before them still uses.
  void advance(const Instruction& i) {
    const bool serial = plan_.hardware.accelerator == Accelerator::kCpu;  // one thread computes and talks
    const auto stream = static_cast<size_t>(serial ? Stream::kCompute : i.stream);
    constexpr auto kCompute = static_cast<size_t>(Stream::kCompute);
    double start = std::max(clock_[stream], clock_[kCompute]);
    for (const int event : i.waits) start = std::max(start, event_[static_cast<size_t>(event)]);
    double d = duration(i);
    by_op_[static_cast<size_t>(i.op)] += d * repeat_;
    if (stream == kCompute) {
      double shared = 0;
      for (size_t other = 0; other < clock_.size(); ++other)
        if (other != kCompute) shared = std::max(shared, std::min(start + d, clock_[other]) - std::max(start, busy_since_[other]));
      d += kContention * std::max(shared, 0.0);
    } else if (start > clock_[stream]) {
      busy_since_[stream] = start;
    }
    clock_[stream] = start + d;
    if (i.signals >= 0) event_[static_cast<size_t>(i.signals)] = clock_[stream];
  }

  const Plan& plan_;
  const Schedule& s_;
  const std::vector<ProgramTime>& times_;
  std::vector<double> event_;
  std::array<double, 3> clock_ = {}, busy_since_ = {};
  std::array<double, 32> by_op_ = {};
  double repeat_ = 1;
};

}  // namespace

ProgramTime program_time(const Plan& plan, const Schedule& s, int variant) {
  const int unit = unit_of_variant(s, variant);
  if (unit < 0) return {};
  const ProgramVariant& v = *s.variants[variant];
  ProgramTime time;
  for (const OpInstance& op : v.forward) time.forward_s += op_s(plan, s, unit, v, op);
  for (const OpInstance& op : v.backward) time.backward_s += op_s(plan, s, unit, v, op);
  return time;
}

double collective_s(const Plan& plan, InstructionOp op, Group group, int64_t bytes) {
  const HardwarePlan& h = plan.hardware;
  const int n = group_size(plan.mesh, group);
  if (n == 1) return 0;
  const Span span = span_of(plan, group);
  const auto message = static_cast<double>(bytes);
  if (h.accelerator == Accelerator::kCuda) {  // NCCL
    Fabric fabric;
    fabric.link_bytes_per_s = h.link_bytes_per_s;
    fabric.nic_bytes_per_s = h.network_bytes_per_s;
    fabric.domain = h.gpus_per_node;
    const GroupSpan ranks{n, span.per_node};
    return op == InstructionOp::kAllReduce ? all_reduce_s(fabric, ranks, message) : all_gather_s(fabric, ranks, message);
  }
  const int rounds = op == InstructionOp::kAllReduce ? 2 : 1;
  // Every rank of a node carries its share of what leaves the node.
  const double bus = span.nodes == 1      ? h.link_bytes_per_s
                     : span.per_node == 1 ? h.network_bytes_per_s
                                          : std::min(h.link_bytes_per_s, h.network_bytes_per_s * span.per_node);
  const double hops_between = span.nodes == 1 ? 0 : span.nodes - 1, hops_inside = n - 1 - hops_between;
  const double latency = kCollectiveBase + rounds * (hops_inside * h.link_latency_s + hops_between * h.network_latency_s);
  return latency + rounds * message * (n - 1) / n / bus;
}

TimePlan step_time(const Plan& plan, const Schedule& schedule, const std::vector<ProgramTime>& times) {
  CHECK(times.size() == schedule.variants.size());
  return StepClock(plan, schedule, times).run();
}

}  // namespace distsetup
