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

// Ranks that share one copy of the model's states: dp_shard × cp × tp, numbered as ranks are. Ep ranks in a row share experts.
int copy_ranks(const Mesh& mesh) { return mesh.dp_shard * mesh.cp * mesh.tp; }

std::vector<int> expert_group_members(const Mesh& mesh, Group group, int rank) {
  const int in_copy = rank % copy_ranks(mesh), place = in_copy % mesh.ep;
  const bool is_ep = group == Group::kEp;
  const int first = is_ep ? rank - place : rank - in_copy + place, step = is_ep ? 1 : mesh.ep;
  std::vector<int> ranks;
  for (int i = 0; i < group_size(mesh, group); ++i) ranks.push_back(first + i * step);
  return ranks;
}

}  // namespace

std::vector<int> group_members(const Mesh& mesh, Group group, int rank) {
  if (is_expert_group(group)) return expert_group_members(mesh, group, rank);
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
  if (group == Group::kEp) return mesh.ep;
  if (group == Group::kExpertData) return copy_ranks(mesh) / mesh.ep;
  int size = 1;
  for (const MeshAxis& axis : kAxes)
    if (has_axis(group, axis.group)) size *= mesh.*axis.size;
  return size;
}

int group_stride(const Mesh& mesh, Group group) {
  const int stage = mesh.dp_replicate * copy_ranks(mesh);
  if (group == Group::kEp) return 1;
  if (group == Group::kExpertData) return mesh.ep;
  if (group == Group::kTied) return (mesh.pp - 1) * stage;
  if (has_axis(group, Group::kTp)) return 1;
  if (has_axis(group, Group::kCp)) return mesh.tp;
  if (has_axis(group, Group::kDpShard)) return mesh.cp * mesh.tp;
  return has_axis(group, Group::kDpReplicate) ? copy_ranks(mesh) : stage;
}

int group_index(const Mesh& mesh, Group group, const Coordinates& at) {
  if (group == Group::kTied) return at.pp == 0 ? 0 : 1;
  if (is_expert_group(group)) {
    const int in_copy = (at.dp_shard * mesh.cp + at.cp) * mesh.tp + at.tp;
    return group == Group::kEp ? in_copy % mesh.ep : in_copy / mesh.ep;
  }
  int index = 0;
  for (const MeshAxis& axis : kAxes)
    if (has_axis(group, axis.group)) index = index * mesh.*axis.size + at.*axis.at;
  return index;
}

Group token_group(const Mesh& mesh) { return mesh.cp > 1 ? Group::kData | Group::kCp : Group::kData; }
Group loss_group(const Mesh& mesh) { return mesh.pp > 1 ? token_group(mesh) | Group::kPp : token_group(mesh); }

RankGroups::RankGroups(const Mesh& mesh, int rank) {
  for (int g = 0; g < kNumGroups; ++g) {
    if (!is_group(g)) continue;
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
  if (group == Group::kEp) return "ep";
  if (group == Group::kExpertData) return "ranks with the same experts";
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
