#include "plan/mesh.h"

#include <utility>

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

namespace {

// Of one axis: its size and where a rank stands on it.
struct MeshAxis {
  Group group;
  int Mesh::*size;
  int Coordinates::*at;
};
constexpr MeshAxis kAxes[] = {{Group::kPp, &Mesh::pp, &Coordinates::pp},  // slowest first, as ranks are numbered
                              {Group::kDpReplicate, &Mesh::dp_replicate, &Coordinates::dp_replicate},
                              {Group::kDpShard, &Mesh::dp_shard, &Coordinates::dp_shard},
                              {Group::kCp, &Mesh::cp, &Coordinates::cp},
                              {Group::kTp, &Mesh::tp, &Coordinates::tp}};

}  // namespace

std::vector<int> group_members(const Mesh& mesh, Group group, int rank) {
  std::vector<Coordinates> members = {coordinates(mesh, rank)};
  for (const MeshAxis& axis : kAxes) {
    if (!has_axis(group, axis.group)) continue;
    std::vector<Coordinates> wider;
    for (Coordinates at : members) {
      for (at.*axis.at = 0; at.*axis.at < mesh.*axis.size; ++(at.*axis.at)) wider.push_back(at);
    }
    members = std::move(wider);
  }
  std::vector<int> ranks;
  for (const Coordinates& at : members) ranks.push_back(rank_of(mesh, at));
  return ranks;
}

int group_size(const Mesh& mesh, Group group) {
  int size = 1;
  for (const MeshAxis& axis : kAxes)
    if (has_axis(group, axis.group)) size *= mesh.*axis.size;
  return size;
}

int group_index(const Mesh& mesh, Group group, const Coordinates& at) {
  int index = 0;
  for (const MeshAxis& axis : kAxes)
    if (has_axis(group, axis.group)) index = index * mesh.*axis.size + at.*axis.at;
  return index;
}

Group state_group(const Mesh& mesh) { return mesh.tp > 1 ? Group::kShardTp : Group::kDpShard; }

RankGroups::RankGroups(const Mesh& mesh, int rank) {
  for (int g = 0; g < kNumGroups; ++g) {
    members_[static_cast<size_t>(g)] = group_members(mesh, static_cast<Group>(g), rank);
    index_[static_cast<size_t>(g)] = group_index(mesh, static_cast<Group>(g), coordinates(mesh, rank));
  }
}

int data_index(const Mesh& mesh, int rank) {
  const Coordinates at = coordinates(mesh, rank);
  return at.dp_replicate * mesh.dp_shard + at.dp_shard;
}

std::string_view name(Group group) {
  switch (group) {
    case Group::kSelf: return "self";
    case Group::kTp: return "tp";
    case Group::kCp: return "cp";
    case Group::kDpShard: return "dp_shard";
    case Group::kDpReplicate: return "dp_replicate";
    case Group::kPp: return "pp";
    case Group::kData: return "data";
    case Group::kShardTp: return "dp_shard and tp";
    case Group::kWorld: return "world";
  }
  return "several axes";
}

}  // namespace distsetup
