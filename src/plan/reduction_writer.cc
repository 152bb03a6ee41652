#include "plan/reduction_writer.h"

#include <string>

#include "plan/node_reduction.h"

namespace distsetup {
namespace {

PendingReduction write_hop(ScheduleWriter& w, int u, int from, Dtype dtype, Hop hop, int together) {
  const UnitLayout& unit = w.unit(u);
  const int ranks = unit.shard_ranks;
  // Of a node's ranks each sends the chunks that another's place has, on every node; then each sends the sum of one.
  const int64_t chunks = hop == Hop::kOnly         ? ranks - 1
                         : hop == Hop::kWithinNode ? int64_t{together - 1} * (ranks / together)
                                                   : ranks / together - 1;
  const int received = w.add_buffer((hop == Hop::kAcrossNodes ? "S" : "R") + std::to_string(u), BufferClass::kCommunication,
                                    unit.shard_numel * chunks * size_bytes(dtype), dtype, BufferLifetime::kSpan, u);
  Instruction& i = w.emit(InstructionOp::kReduceScatter, u);
  i.bucket = u;
  i.group = unit.shard_group;
  i.bytes = unit.shard_numel * (hop == Hop::kAcrossNodes ? ranks / together : ranks) * size_bytes(dtype);
  i.dtype = dtype;
  i.stream = Stream::kReduce;
  i.hop = hop;
  i.node_ranks = together;
  i.uses = {from};
  i.allocates = {received};
  i.signals = w.new_event();
  return {u, from, received, i.signals, hop, together};
}

}  // namespace

PendingReduction write_reduction(ScheduleWriter& w, int u, int full, Dtype dtype) {
  const int together = node_ranks(w.plan_, w.unit(u).shard_group);
  return write_hop(w, u, full, dtype, together > 0 ? Hop::kWithinNode : Hop::kOnly, together);
}

PendingReduction write_second_hop(ScheduleWriter& w, const PendingReduction& arrived) {
  const int u = arrived.unit;
  const UnitLayout& unit = w.unit(u);
  const int together = arrived.node_ranks;
  const int sums =
      w.add_buffer("N" + std::to_string(u), BufferClass::kCommunication,
                   unit.shard_numel * (unit.shard_ranks / together) * size_bytes(Dtype::kF32), Dtype::kF32, BufferLifetime::kSpan, u);
  Instruction& i = w.emit(InstructionOp::kAccumulate, u);
  i.bucket = u;
  i.hop = Hop::kWithinNode;
  i.node_ranks = together;
  i.waits = {arrived.event};
  i.allocates = {sums};
  i.uses = {arrived.full, arrived.received, sums};
  i.frees = {arrived.full, arrived.received};
  return write_hop(w, u, sums, Dtype::kF32, Hop::kAcrossNodes, together);
}

}  // namespace distsetup
