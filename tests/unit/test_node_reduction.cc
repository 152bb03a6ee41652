// Which reductions go in two hops, and what these cost.
#include "plan/node_reduction.h"
#include "planner/native/step_time.h"
#include "support/random_plan.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

TEST_CASE("ranks of a group that share a node are those whose numbers divide by the node's GPUs alike") {
  const Mesh meshes[] = {
      {.dp_shard = 16},          {.dp_shard = 8, .tp = 2},  {.dp_replicate = 2, .dp_shard = 8}, {.dp_shard = 4, .cp = 2, .tp = 2},
      {.pp = 2, .dp_shard = 12}, {.dp_shard = 16, .ep = 4}, {.pp = 3, .dp_shard = 6, .tp = 2}};
  const Group groups[] = {Group::kDpShard, Group::kDpShard | Group::kCp, Group::kDpShard | Group::kCp | Group::kTp, Group::kTp,
                          Group::kExpertData};
  int split = 0;
  for (const Mesh& mesh : meshes) {
    for (const Group group : groups) {
      for (const int per_node : {1, 2, 3, 4, 6, 8, 16}) {
        const int together = ranks_per_node(mesh, group, per_node);
        split += together > 1 && together < group_size(mesh, group);
        if (together == 1 || mesh.world() % per_node != 0) continue;
        for (int rank = 0; rank < mesh.world(); ++rank) {
          const std::vector<int> members = group_members(mesh, group, rank);
          for (size_t m = 0; m < members.size(); ++m) {
            const size_t first = m / static_cast<size_t>(together) * static_cast<size_t>(together);
            INFO(name(group) << ", " << per_node << " GPUs on a node, rank " << members[m]);
            CHECK(members[m] / per_node == members[first] / per_node);
          }
        }
      }
    }
  }
  CHECK(split > 20);
}

TEST_CASE("members of hops: each pair of a group meets in one of them, or through one rank in both") {
  for (const auto& [size, together] : {std::pair{8, 4}, {8, 2}, {12, 3}}) {
    for (int i = 0; i < size; ++i) {
      const std::vector<int> node = hop_members(Hop::kWithinNode, size, i, together);
      const std::vector<int> place = hop_members(Hop::kAcrossNodes, size, i, together);
      CHECK(static_cast<int>(node.size()) == together);
      CHECK(static_cast<int>(place.size()) == size / together);
      for (const int a : node) CHECK(a / together == i / together);
      for (const int b : place) CHECK(b % together == i % together);
    }
    CHECK(hop_members(Hop::kOnly, size, 1, 0).size() == static_cast<size_t>(size));
  }
}

Plan two_nodes(Dtype compute, int per_node) {
  PlanChoice c{.sharding = Sharding::kZero3, .dp_shard = 2 * per_node, .compute = compute};
  c.nodes = 2;
  Plan p = make_test_plan(tiny_geometry(2), c);
  p.hardware.accelerator = Accelerator::kCuda;
  p.hardware.link_bytes_per_s = 4e11;
  p.hardware.network_bytes_per_s = 4e10;
  return p;
}

TEST_CASE("two hops are taken where they send less: bf16 from three ranks on a node, fp32 from two") {
  CHECK_FALSE(two_hops_send_less(two_nodes(Dtype::kBf16, 2)));
  CHECK(two_hops_send_less(two_nodes(Dtype::kBf16, 4)));
  CHECK(two_hops_send_less(two_nodes(Dtype::kF32, 2)));
  Plan alone = two_nodes(Dtype::kF32, 1);
  CHECK_FALSE(two_hops_send_less(alone));
  alone.hardware.gpus_per_node = 2;  // one node
  CHECK_FALSE(two_hops_send_less(alone));
}

TEST_CASE("two hops of large messages cost what the network carries in them") {
  Plan p = two_nodes(Dtype::kBf16, 8);
  const double chunk = 1 << 26;  // elements; a message of 2 GiB
  const double two_s = reduction_s(p, Group::kDpShard, chunk, 2);
  p.strategy.hierarchical_reduction = false;
  const double one_s = reduction_s(p, Group::kDpShard, chunk, 2);
  // 8 chunks of bf16 against one of fp32; and within the node 14 chunks of bf16 over a link ten times as fast.
  const double one_wire_s = 8 * chunk * 2 / 4e10, two_wire_s = chunk * 4 / 4e10 + 14 * chunk * 2 / 4e11;
  CHECK(one_s == Approx(one_wire_s).epsilon(0.03));
  CHECK(two_s == Approx(two_wire_s).epsilon(0.03));
}

}  // namespace
}  // namespace distsetup
