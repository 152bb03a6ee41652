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
// In the same order on all ranks. Of groups of one rank too; those of the same ranks, purpose and stream share a communicator.
std::vector<ChannelUse> channel_uses(const Mesh& mesh, Sharding sharding);

// Communicators of a rank of more than one rank, without those between stages of a pipeline.
int num_communicators(const Mesh& mesh, Sharding sharding = Sharding::kZero3);

}  // namespace distsetup
