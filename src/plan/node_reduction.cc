#include "plan/node_reduction.h"

#include <fmt/format.h>

#include "plan/layout.h"

namespace distsetup {

int ranks_per_node(const Mesh& mesh, Group group, int gpus_per_node) {
  const int stride = group_stride(mesh, group), size = group_size(mesh, group);
  if (gpus_per_node < 1 || gpus_per_node % stride != 0) return 1;
  const int together = gpus_per_node / stride;
  if (together >= size) return together % size == 0 ? size : 1;
  return size % together == 0 ? together : 1;
}

int node_ranks(const Plan& plan, Group group) {
  if (!plan.strategy.hierarchical_reduction) return 0;
  const int together = ranks_per_node(plan.mesh, group, plan.hardware.gpus_per_node);
  return together > 1 && together < group_size(plan.mesh, group) ? together : 0;
}

bool two_hops_send_less(const Plan& plan) {
  const Group group = shard_group(plan.mesh, plan.strategy.sharding);
  const int together = ranks_per_node(plan.mesh, group, plan.hardware.gpus_per_node);
  const bool is_f32 = plan.precision.compute == Dtype::kF32;
  return together < group_size(plan.mesh, group) && together * (is_f32 ? 4 : size_bytes(plan.precision.compute)) > 4;
}

std::vector<int> hop_members(Hop hop, int size, int index, int node_ranks) {
  const bool is_split = hop != Hop::kOnly && node_ranks > 0 && node_ranks < size && size % node_ranks == 0;
  int first = 0, step = 1, count = size;
  if (is_split && hop == Hop::kWithinNode) {
    first = index / node_ranks * node_ranks;
    count = node_ranks;
  } else if (is_split) {
    first = index % node_ranks;
    step = node_ranks;
    count = size / node_ranks;
  } else if (hop == Hop::kAcrossNodes) {  // of a job that check_job has cut smaller than a node: the first hop met them all
    first = index;
    count = 1;
  }
  std::vector<int> members;
  for (int i = 0; i < count; ++i) members.push_back(first + i * step);
  return members;
}

std::string hop_problem(const Plan& plan, const Schedule& s, const Instruction& i, bool has_node_sums) {
  const std::string& of = s.buffers[static_cast<size_t>(i.uses[0])].name;
  if (has_node_sums && i.hop != Hop::kAcrossNodes) return fmt::format("takes '{}', the sums of one node, for those of all", of);
  if (!has_node_sums && i.hop == Hop::kAcrossNodes) return fmt::format("takes '{}' of one rank for the sums of its node", of);
  if (i.op == InstructionOp::kReduceScatter && i.node_ranks != node_ranks(plan, i.group))
    return fmt::format("reduces '{}' over {} with {} ranks on a node", of, name(i.group), i.node_ranks);
  return "";
}

}  // namespace distsetup
