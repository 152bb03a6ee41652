#include "plan/mesh.h"

#include <algorithm>

#include "base/check.h"

namespace distsetup {

Coordinates coordinates(const Mesh& mesh, int rank) {
  CHECK(rank >= 0 && rank < mesh.world(), "rank {} world {}", rank, mesh.world());
  Coordinates at;
  at.tp = rank % mesh.tp;
  rank /= mesh.tp;
  at.cp = rank % mesh.cp;
  rank /= mesh.cp;
  at.dp_shard = rank % mesh.dp_shard;
  rank /= mesh.dp_shard;
  at.dp_replicate = rank % mesh.dp_replicate;
  at.pp = rank / mesh.dp_replicate;
  return at;
}

int rank_of(const Mesh& mesh, const Coordinates& at) {
  return (((at.pp * mesh.dp_replicate + at.dp_replicate) * mesh.dp_shard + at.dp_shard) * mesh.cp + at.cp) * mesh.tp + at.tp;
}

std::vector<int> group_members(const Mesh& mesh, Group group, int rank) {
  const Coordinates own = coordinates(mesh, rank);
  std::vector<int> members;
  for (int other = 0; other < mesh.world(); ++other) {
    const Coordinates at = coordinates(mesh, other);
    const bool same_slice = at.pp == own.pp && at.cp == own.cp && at.tp == own.tp;
    bool in = false;
    switch (group) {
      case Group::kSelf: in = other == rank; break;
      case Group::kDpShard: in = same_slice && at.dp_replicate == own.dp_replicate; break;
      case Group::kDpReplicate: in = same_slice && at.dp_shard == own.dp_shard; break;
      case Group::kData: in = same_slice; break;
      case Group::kWorld: in = true; break;
    }
    if (in) members.push_back(other);
  }
  return members;
}

int group_size(const Mesh& mesh, Group group) {
  switch (group) {
    case Group::kSelf: return 1;
    case Group::kDpShard: return mesh.dp_shard;
    case Group::kDpReplicate: return mesh.dp_replicate;
    case Group::kData: return mesh.data_parallel();
    case Group::kWorld: return mesh.world();
  }
  return 1;
}

RankGroups::RankGroups(const Mesh& mesh, int rank) {
  for (int g = 0; g < kNumGroups; ++g) {
    members_[g] = group_members(mesh, static_cast<Group>(g), rank);
    index_[g] = static_cast<int>(std::find(members_[g].begin(), members_[g].end(), rank) - members_[g].begin());
  }
}

int data_index(const Mesh& mesh, int rank) {
  const Coordinates at = coordinates(mesh, rank);
  return at.dp_replicate * mesh.dp_shard + at.dp_shard;
}

std::string_view name(Group group) {
  switch (group) {
    case Group::kSelf: return "self";
    case Group::kDpShard: return "dp_shard";
    case Group::kDpReplicate: return "dp_replicate";
    case Group::kData: return "data";
    case Group::kWorld: return "world";
  }
  return "?";
}

}  // namespace distsetup
