#include "plan/communicators.h"

#include <array>
#include <set>
#include <tuple>
#include <utility>

namespace distsetup {
namespace {

// How the ranks of a group lie: for each axis along which it has several, how many and how far apart, the nearest first. Unused places
// are {1, 0}. Two groups that have the same ranks are equal here, whatever they are called.
using Spread = std::array<std::pair<int, int>, 5>;  // size, stride

Spread spread_of(const Mesh& m, Group group) {
  Spread spread;
  spread.fill({1, 0});
  size_t n = 0;
  const auto add = [&](int size, int stride) {
    if (size == 1) return;
    if (n > 0 && spread[n - 1].first * spread[n - 1].second == stride)
      spread[n - 1].first *= size;  // in a row with those before
    else
      spread[n++] = {size, stride};
  };
  if (is_expert_group(group)) {
    group == Group::kEp ? add(m.ep, 1) : add(group_size(m, group), m.ep);
    return spread;
  }
  int stride = 1;
  for (const auto& [axis, size] : {std::pair{Group::kTp, m.tp},
                                   {Group::kCp, m.cp},
                                   {Group::kDpShard, m.dp_shard},
                                   {Group::kDpReplicate, m.dp_replicate},
                                   {Group::kPp, m.pp}}) {
    if (has_axis(group, axis)) add(size, stride);
    stride *= size;
  }
  return spread;
}

}  // namespace

std::vector<ChannelUse> channel_uses(const Mesh& mesh, Sharding sharding) {
  std::vector<ChannelUse> uses;
  const auto add_pair = [&](Group group, Stream gathers, Stream reductions) {
    uses.push_back({Purpose::kGathers, group, gathers});
    uses.push_back({Purpose::kReductions, group, reductions});
  };
  for (const Group group : {Group::kTp, Group::kCp, Group::kEp}) add_pair(group, Stream::kCompute, Stream::kCompute);  // programs wait
  for (const Group group : {shard_group(mesh, sharding), shared_group(mesh, sharding)})
    add_pair(group, Stream::kGather, Stream::kReduce);
  if (mesh.ep > 1) {
    add_pair(Group::kExpertData, Stream::kGather, Stream::kReduce);
    uses.push_back({Purpose::kReplicas, Group::kDpReplicate, Stream::kReduce});
  }
  uses.push_back({Purpose::kReplicas, replica_group(mesh, sharding), Stream::kReduce});
  uses.push_back({Purpose::kReplicas, Group::kTied, Stream::kReduce});
  uses.push_back({Purpose::kScalars, loss_group(mesh), Stream::kCompute});
  uses.push_back({Purpose::kScalars, state_group(mesh, sharding), Stream::kCompute});
  return uses;
}

int num_communicators(const Mesh& mesh, Sharding sharding) {
  std::set<std::tuple<Purpose, Stream, Spread>> found;
  for (const ChannelUse& use : channel_uses(mesh, sharding))
    if (use.group != Group::kTied && group_size(mesh, use.group) > 1)
      found.insert({use.purpose, use.stream, spread_of(mesh, use.group)});
  return static_cast<int>(found.size());
}

}  // namespace distsetup
