// How ranks are arranged: named axes, tp fastest, pp slowest. Everything about groups is derived from the six sizes.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace distsetup {

struct Mesh {
  int pp = 1;            // pipeline stages
  int dp_replicate = 1;  // copies of the shard group
  int dp_shard = 1;      // ranks that split parameters, gradients, optimizer state
  int cp = 1;            // context parallel
  int tp = 1;            // tensor parallel
  int ep = 1;            // expert parallel: so many consecutive ranks of dp_shard × cp × tp share the experts of each layer
  int world() const { return pp * dp_replicate * dp_shard * cp * tp; }
  int data_parallel() const { return dp_replicate * dp_shard; }  // ranks that see different samples
  bool operator==(const Mesh&) const = default;
};

struct Coordinates {
  int pp = 0, dp_replicate = 0, dp_shard = 0, cp = 0, tp = 0;
  bool operator==(const Coordinates&) const = default;
};

// A group is a set of axes: the ranks that differ in these axes only.
enum class Group : uint8_t {
  kSelf = 0,
  kTp = 1,
  kCp = 2,
  kDpShard = 4,
  kDpReplicate = 8,
  kPp = 16,
  kData = kDpReplicate | kDpShard,  // ranks that see different samples
  kWorld = 31,
  // No sets of axes:
  kTied = 32,       // the first and the last stage of a pipeline, which both have a tied embedding
  kEp = 64,         // ranks that share the experts of each layer
  kExpertData = 96  // ranks of dp_shard × cp × tp that have the same experts
};
inline constexpr int kNumGroups = 97;
constexpr Group operator|(Group a, Group b) { return static_cast<Group>(static_cast<int>(a) | static_cast<int>(b)); }
inline bool is_group(int number) {
  return number <= 32 || number == static_cast<int>(Group::kEp) || number == static_cast<int>(Group::kExpertData);
}
inline bool is_expert_group(Group group) { return group == Group::kEp || group == Group::kExpertData; }
inline bool has_axis(Group group, Group axis) { return (static_cast<int>(group) & static_cast<int>(axis)) != 0; }

Coordinates coordinates(const Mesh& mesh, int rank);
int rank_of(const Mesh& mesh, const Coordinates& at);
std::vector<int> group_members(const Mesh& mesh, Group group, int rank);  // ascending; contains rank
int group_size(const Mesh& mesh, Group group);
int group_stride(const Mesh& mesh, Group group);  // how far apart the ranks of its fastest axis lie; 1: next to each other
int group_index(const Mesh& mesh, Group group, const Coordinates& at);  // place in group_members()

// Ranks that see different tokens: other samples, or other parts of the same.
Group token_group(const Mesh& mesh);
// Ranks whose losses add up to that of a step: all that see other tokens, and of a pipeline the last stage's.
Group loss_group(const Mesh& mesh);

// The groups of one rank, looked up once.
class RankGroups {
 public:
  RankGroups(const Mesh& mesh, int rank);
  const std::vector<int>& members(Group group) const { return members_[static_cast<size_t>(group)]; }
  int size(Group group) const { return static_cast<int>(members(group).size()); }
  int index(Group group) const { return index_[static_cast<size_t>(group)]; }

 private:
  std::array<std::vector<int>, kNumGroups> members_;
  std::array<int, kNumGroups> index_{};
};

// How context-parallel ranks let their queries meet the keys of the others (context_parallel.h).
enum class CpMethod { kRing, kAllGather, kUlysses };
std::string_view name(CpMethod method);  // "ring", "allgather", "ulysses"
std::optional<CpMethod> cp_method_of(std::string_view name);

int data_index(const Mesh& mesh, int rank);  // which slice of the global batch: dp_replicate · dp_shard_size + dp_shard
std::string_view name(Group group);

}  // namespace distsetup
