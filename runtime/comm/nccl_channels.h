// What ranks of a mesh talk to each other about over NCCL, and on which stream: a communicator for each purpose, group and stream.
#pragma once
#include <vector>

#include "plan/layout.h"
#include "plan/schedule.h"

namespace distsetup {

enum class Purpose { kGathers, kReductions, kReplicas, kScalars };
inline constexpr const char* kPurposes[] = {"gathers", "reductions", "replicas", "scalars"};

struct ChannelUse {
  Purpose purpose = Purpose::kGathers;
  Group group = Group::kSelf;
  Stream stream = Stream::kCompute;
};
// In the same order on all ranks. Of groups of one rank too, and some twice.
inline std::vector<ChannelUse> channel_uses(const Mesh& mesh, Sharding sharding) {
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

}  // namespace distsetup
