#include "plan/mesh.h"

#include <algorithm>
#include <array>
#include <string>
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
  if (group == Group::kTied && (members[0].pp == 0 || members[0].pp == mesh.pp - 1)) {
    members.resize(mesh.pp > 1 ? 2 : 1, members[0]);
    members.front().pp = 0;
    members.back().pp = mesh.pp - 1;
  }
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
  if (group == Group::kTied) return std::min(mesh.pp, 2);
  int size = 1;
  for (const MeshAxis& axis : kAxes)
    if (has_axis(group, axis.group)) size *= mesh.*axis.size;
  return size;
}

int group_index(const Mesh& mesh, Group group, const Coordinates& at) {
  if (group == Group::kTied) return at.pp == 0 ? 0 : 1;
  int index = 0;
  for (const MeshAxis& axis : kAxes)
    if (has_axis(group, axis.group)) index = index * mesh.*axis.size + at.*axis.at;
  return index;
}

Group token_group(const Mesh& mesh) { return mesh.cp > 1 ? Group::kData | Group::kCp : Group::kData; }
Group loss_group(const Mesh& mesh) { return mesh.pp > 1 ? token_group(mesh) | Group::kPp : token_group(mesh); }

RankGroups::RankGroups(const Mesh& mesh, int rank) {
  for (int g = 0; g < kNumGroups; ++g) {
    members_[static_cast<size_t>(g)] = group_members(mesh, static_cast<Group>(g), rank);
    index_[static_cast<size_t>(g)] = group_index(mesh, static_cast<Group>(g), coordinates(mesh, rank));
  }
}

std::string_view name(CpMethod method) {
  switch (method) {
    case CpMethod::kRing: return "ring";
    case CpMethod::kAllGather: return "allgather";
    case CpMethod::kUlysses: return "ulysses";
  }
  return "?";
}

std::optional<CpMethod> cp_method_of(std::string_view text) {
  for (const CpMethod method : {CpMethod::kRing, CpMethod::kAllGather, CpMethod::kUlysses})
    if (name(method) == text) return method;
  return std::nullopt;
}

int data_index(const Mesh& mesh, int rank) {
  const Coordinates at = coordinates(mesh, rank);
  return at.dp_replicate * mesh.dp_shard + at.dp_shard;
}

namespace {

// "dp_shard and cp and tp", slowest axis first; some sets have names of their own.
std::string name_of(Group group) {
  if (group == Group::kSelf) return "self";
  if (group == Group::kWorld) return "world";
  if (group == Group::kTied) return "first and last stage";
  std::string text;
  const auto add = [&](std::string_view word) { text += (text.empty() ? "" : " and ") + std::string(word); };
  const bool is_data = (static_cast<int>(group) & static_cast<int>(Group::kData)) == static_cast<int>(Group::kData);
  if (has_axis(group, Group::kPp)) add("pp");
  if (is_data) add("data");
  if (!is_data && has_axis(group, Group::kDpReplicate)) add("dp_replicate");
  if (!is_data && has_axis(group, Group::kDpShard)) add("dp_shard");
  if (has_axis(group, Group::kCp)) add("cp");
  if (has_axis(group, Group::kTp)) add("tp");
  return text;
}

}  // namespace

std::string_view name(Group group) {
  static const std::array<std::string, kNumGroups> kNames = [] {
    std::array<std::string, kNumGroups> names;
    for (int g = 0; g < kNumGroups; ++g) names[static_cast<size_t>(g)] = name_of(static_cast<Group>(g));
    return names;
  }();
  return kNames[static_cast<size_t>(group)];
}

}  // namespace distsetup
