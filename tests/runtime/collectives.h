// What communicators of any kind are held to: values that say where they come from arrive in every member's place.
#pragma once
#include <algorithm>
#include <vector>

#include "plan/mesh.h"
#include "runtime/comm/communicator.h"

namespace distsetup {

// One rank's part, which all ranks of the mesh run: a gather and an exchange over dp_shard, both under way at once, and sums over
// several groups. How many values are wrong.
inline int wrong_values(const Mesh& mesh, Communicator& c) {
  const int64_t chunk = 1000;
  const std::vector<int> members = group_members(mesh, Group::kDpShard, c.rank());
  const int n = c.size(Group::kDpShard), at = c.index(Group::kDpShard);
  std::vector<float> gathered(size_t(n * chunk), -1.f), full(size_t(n * chunk)), received(size_t(std::max(1, n - 1) * chunk), -1.f);
  for (int64_t i = 0; i < chunk; ++i) gathered[size_t(at * chunk + i)] = float(c.rank() * 10000 + i);
  // full chunk p on rank r: r · 100 + p
  for (int p = 0; p < n; ++p) std::fill_n(&full[size_t(p * chunk)], chunk, float(c.rank() * 100 + p));
  std::vector<float> sums(50, float(c.rank() + 1));
  double of_all = c.rank() + 1, in_shard = c.rank() + 1;
  const auto g = c.all_gather(Group::kDpShard, gathered.data(), chunk * 4);
  const auto e = c.exchange(Group::kDpShard, full.data(), received.data(), chunk * 4);
  e->wait();
  g->wait();
  c.all_reduce_sum(Group::kDpReplicate, sums.data(), 50)->wait();
  c.all_reduce_sum(Group::kData, &of_all, 1)->wait();
  c.all_reduce_sum(Group::kDpShard, &in_shard, 1)->wait();
  int wrong = 0;
  for (int p = 0; p < n; ++p) {
    for (int64_t i = 0; i < chunk; ++i) wrong += gathered[size_t(p * chunk + i)] != float(members[size_t(p)] * 10000 + i);
  }
  for (int k = 1; k < n; ++k) {
    const int from = members[size_t((at + k) % n)];
    for (int64_t i = 0; i < chunk; ++i) wrong += received[size_t((k - 1) * chunk + i)] != float(from * 100 + at);
  }
  const auto sum_of = [](const std::vector<int>& ranks) {
    double sum = 0;
    for (const int r : ranks) sum += r + 1;
    return sum;
  };
  const double expected = sum_of(group_members(mesh, Group::kDpReplicate, c.rank()));
  wrong += sums[0] != expected || sums[49] != expected;
  wrong += of_all != mesh.world() * (mesh.world() + 1) / 2.0;
  wrong += in_shard != sum_of(members);
  return wrong;
}

}  // namespace distsetup
