#include "runtime/engine/node_hops.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "plan/node_reduction.h"

namespace distsetup {
namespace {

// Where a rank stands in its group: among the ranks of its node, and its node among those of the group.
struct HopPlace {
  int node_ranks = 1, nodes = 1, local = 0, node = 0;
};

HopPlace place_of(int size, int index, int node_ranks) {
  CHECK(node_ranks > 1 && size % node_ranks == 0, "{} ranks, {} on a node", size, node_ranks);
  return {node_ranks, size / node_ranks, index % node_ranks, index / node_ranks};
}

char* at_chunk(const Argument& of, int64_t chunk, int64_t chunk_bytes) { return static_cast<char*>(of.data) + chunk * chunk_bytes; }

}  // namespace

std::unique_ptr<Work> start_hop(const Instruction& i, const Call& call, Communicator& communicator) {
  const int size = communicator.size(i.group), index = communicator.index(i.group);
  const HopPlace p = place_of(size, index, i.node_ranks);
  const Argument &from = call.reads[0], &to = call.writes[0];
  const bool is_within = i.hop == Hop::kWithinNode;
  const int64_t chunk_bytes = num_bytes(from) / (is_within ? size : p.nodes);
  const int met = is_within ? p.node_ranks : p.nodes, own = is_within ? p.local : p.node;
  const int rounds = is_within ? p.nodes : 1;
  const std::vector<int> members = hop_members(i.hop, size, index, i.node_ranks);
  std::vector<RowPiece> sent, received;
  // As Communicator::exchange: what comes from the k-th member behind this one lies at k - 1. Within a node there are as many chunks
  // from each as there are nodes, and those of a node lie together.
  for (int k = 1; k < met; ++k) {
    const int other = (own + k) % met;
    for (int round = 0; round < rounds; ++round) {
      const int64_t theirs = is_within ? int64_t{round} * p.node_ranks + other : other;
      sent.push_back({members[size_t(other)], round, at_chunk(from, theirs, chunk_bytes), chunk_bytes});
      received.push_back({members[size_t(other)], round, at_chunk(to, int64_t{round} * (met - 1) + k - 1, chunk_bytes), chunk_bytes});
    }
  }
  return communicator.exchange_pieces("ReduceScatter", i.group, sent, received, rounds);
}

void accumulate_hop(const Instruction& i, const Call& call, const Layout& layout, const Coordinates& at, const Kernels& kernels) {
  const UnitLayout& unit = layout.units[size_t(i.unit)];
  const HopPlace p = place_of(unit.shard_ranks, shard_index(layout, unit, at), i.node_ranks);
  const Argument &own = call.reads[0], &received = call.reads[1];
  auto* const target = static_cast<float*>(call.writes[0].data);
  const int64_t chunk = unit.shard_numel, chunk_bytes = chunk * size_bytes(own.dtype);
  const auto valid = [&](int member) { return owned_range(unit, member).size(); };
  if (i.hop == Hop::kAcrossNodes)
    return kernels.sum_chunks(target, at_chunk(own, p.node, chunk_bytes), received.data, own.dtype, p.nodes, p.node, chunk,
                              valid(p.node * p.node_ranks + p.local), call.accumulate);
  for (int node = 0; node < p.nodes; ++node) {
    const int member = node * p.node_ranks + p.local;
    kernels.sum_chunks(target + node * chunk, at_chunk(own, member, chunk_bytes),
                       at_chunk(received, int64_t{node} * (p.node_ranks - 1), chunk_bytes), own.dtype, p.node_ranks, p.local, chunk,
                       valid(member), false);
  }
}

}  // namespace distsetup
