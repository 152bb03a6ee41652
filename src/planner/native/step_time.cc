// Collectives of GPUs by NCCL's cost model (time/collective.h), of CPUs as latency per hop plus bytes · (n-1)/n over the bus bandwidth
// (nccl-tests' PERFORMANCE.md). Leaves out: message-size ramps of the network, the input pipeline, checkpoints.
#include "planner/native/step_time.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "model/flops.h"
#include "planner/time/collective.h"

namespace distsetup {
namespace {

constexpr double kCollectiveBase = 8.4e-6;  // of a transfer between CPU ranks

bool on_gpu(const Plan& plan) { return plan.hardware.accelerator == Accelerator::kCuda; }

// How many nodes a group spans, and how many of its ranks share one.
struct NodeSpan {
  int nodes = 1, per_node = 1;
};

NodeSpan span_of(const Plan& plan, Group group) {
  const int n = group_size(plan.mesh, group), per_node = plan.hardware.gpus_per_node;
  // How far apart its ranks are: tp ranks lie next to each other, then those of cp.
  const Mesh& m = plan.mesh;
  const int stride = has_axis(group, Group::kTp)        ? 1
                     : has_axis(group, Group::kCp)      ? m.tp
                     : has_axis(group, Group::kDpShard) ? m.cp * m.tp
                                                        : m.dp_shard * m.cp * m.tp;
  const int together = std::clamp(per_node / std::max(stride, 1), 1, n);
  return {(n + together - 1) / together, together};
}

// Of an instruction that runs no program.
double duration(const Plan& plan, const Schedule& s, const Instruction& i) {
  const HardwarePlan& h = plan.hardware;
  const auto shard = [&](int u) {
    return static_cast<double>(u >= 0 ? s.layout->units[static_cast<size_t>(u)].shard_numel : s.layout->shard_numel);
  };
  const double element = static_cast<double>(size_bytes(i.dtype == Dtype::kCompute ? s.compute : i.dtype));
  switch (i.op) {
    case InstructionOp::kAllGather:
    case InstructionOp::kReduceScatter:
    case InstructionOp::kAllReduce: return collective_s(plan, i.op, i.group, i.bytes);
    case InstructionOp::kCast: return stream_s(h, shard(i.unit) * (4 + element));
    case InstructionOp::kAccumulate: {
      const double ranks = s.layout->units[static_cast<size_t>(i.unit)].shard_ranks;
      return stream_s(h, shard(i.unit) * (ranks * element + 8));
    }
    case InstructionOp::kGradNorm: return stream_s(h, shard(-1) * 4);
    case InstructionOp::kOptimizerStep: return stream_s(h, shard(-1) * kOptimizerBytesPerParameter);
    default: return 0;
  }
}

class StepClock {
 public:
  StepClock(const Plan& plan, const StepList& list, const std::vector<ProgramTime>& times)
      : plan_(plan), list_(list), times_(times), event_(static_cast<size_t>(list.num_events), 0.0), serial_(!on_gpu(plan)) {}

  TimePlan run() {
    double skipped = 0;  // of segments written once and run several times
    for (size_t s = 0; s < list_.segments.size(); ++s) {
      const Segment& segment = list_.segments[s];
      const double begin = now();
      const bool middle = s == 1 && list_.segments.size() == 3;
      repeat_ = static_cast<double>(middle ? plan_.gradient_accumulation - 2 : segment.repeat);
      for (int i = 0; i < segment.num_instructions; ++i) advance(list_.items[static_cast<size_t>(segment.first_instruction + i)]);
      skipped += (repeat_ - 1) * (now() - begin);
    }
    TimePlan time;
    time.step_s = (now() + skipped) * straggling(plan_);
    const double tokens = static_cast<double>(plan_.train.global_batch * plan_.train.sequence_length);
    time.tokens_per_s = tokens / time.step_s;
    time.tokens_per_s_per_gpu = time.tokens_per_s / plan_.mesh.world();
    time.mfu = time.tokens_per_s_per_gpu * list_.flops_per_token / plan_.hardware.peak_flops_per_s;
    for (size_t op = 0; op < by_op_.size(); ++op)
      if (by_op_[op] > 0) time.by_instruction.push_back({std::string(name(static_cast<InstructionOp>(op))), by_op_[op]});
    return time;
  }

 private:
  double now() const { return std::max({clock_[0], clock_[1], clock_[2]}); }

  double duration_of(const StepList::TimedItem& i) const {
    if (i.program < 0) return i.seconds;
    const ProgramTime& time = times_[static_cast<size_t>(i.program)];
    return i.op == InstructionOp::kForward ? time.forward_s : time.backward_s;
  }

  // Transfers of one rank start where the program reaches them: their buffers may take bytes that compute before them still uses.
  void advance(const StepList::TimedItem& i) {
    constexpr auto kCompute = static_cast<size_t>(Stream::kCompute);
    const size_t stream = serial_ ? kCompute : i.stream;  // on CPU one thread computes and talks
    double start = std::max(clock_[stream], clock_[kCompute]);
    for (int n = 0; n < i.num_waits; ++n)
      start = std::max(start, event_[static_cast<size_t>(list_.waits[static_cast<size_t>(i.first_wait + n)])]);
    double d = duration_of(i);
    by_op_[static_cast<size_t>(i.op)] += d * repeat_;
    if (stream == kCompute) {
      double shared = 0;
      for (size_t other = 0; other < clock_.size(); ++other)
        if (other != kCompute) shared = std::max(shared, std::min(start + d, clock_[other]) - std::max(start, busy_since_[other]));
      d += plan_.hardware.rates.contention * shared;
    } else if (start > clock_[stream]) {
      busy_since_[stream] = start;
    }
    clock_[stream] = start + d;
    if (i.signals >= 0) event_[static_cast<size_t>(i.signals)] = clock_[stream];
  }

  const Plan& plan_;
  const StepList& list_;
  const std::vector<ProgramTime>& times_;
  std::vector<double> event_;
  const bool serial_;
  std::array<double, 3> clock_ = {}, busy_since_ = {};
  std::array<double, 32> by_op_ = {};
  double repeat_ = 1;
};

}  // namespace

StepList step_list(const Plan& plan, const Schedule& s) {
  StepList list;
  list.segments = s.segments;
  list.num_events = s.num_events;
  list.programs = unit_programs(s);
  list.compute = s.compute;
  list.flops_per_token = token_flops(plan.model, plan.train.sequence_length).train;
  for (const Buffer& b : s.buffers) {
    if (b.lifetime != BufferLifetime::kRun) continue;
    const bool per_token = b.name == "ids" || b.name == "targets";
    list.run_bytes += per_token ? 0 : b.bytes;
    if (per_token) list.run_bytes_per_token += size_bytes(b.dtype);
  }
  list.items.reserve(s.instructions.size());
  for (const Instruction& i : s.instructions) {
    StepList::TimedItem item;
    item.op = i.op;
    item.stream = static_cast<uint8_t>(i.stream);
    item.first_wait = static_cast<int>(list.waits.size());
    item.num_waits = static_cast<int>(i.waits.size());
    list.waits.insert(list.waits.end(), i.waits.begin(), i.waits.end());
    item.signals = i.signals;
    const bool runs = i.op == InstructionOp::kForward || i.op == InstructionOp::kBackward;
    if (runs)
      item.program = static_cast<int16_t>(s.unit_variant[static_cast<size_t>(i.unit)]);
    else
      item.seconds = duration(plan, s, i);
    item.live = live_change(s, i);
    list.items.push_back(item);
  }
  return list;
}

double straggling(const Plan& plan) { return 1 + plan.hardware.rates.straggler * std::log2(static_cast<double>(plan.mesh.world())); }

double collective_s(const Plan& plan, InstructionOp op, Group group, int64_t bytes) {
  const HardwarePlan& h = plan.hardware;
  const int n = group_size(plan.mesh, group);
  if (n == 1) return 0;
  const NodeSpan span = span_of(plan, group);
  const auto message = static_cast<double>(bytes);
  if (on_gpu(plan)) {  // NCCL
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

TimePlan step_time(const Plan& plan, const StepList& list, const std::vector<ProgramTime>& times) {
  CHECK(times.size() == list.programs.size());
  return StepClock(plan, list, times).run();
}

}  // namespace distsetup
