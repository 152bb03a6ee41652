// Reductions over a group that spans several nodes, in two hops: first the ranks of each node add up what they have of every chunk
// that a rank of their own place has, on any node; then the ranks of one place, one on each node, add these sums up. Each rank sends
// (nodes - 1) chunks over the network instead of one for every rank of another node, and these are fp32, so that a sum is rounded
// where it would be in one hop. Sums are taken in ascending rank order, as in one hop, node by node.
// Where: members of a group are numbered as ranks are; `node_ranks` of them in a row share a node. Chunk p of a unit is member p's.
// Left out: gathers, which NCCL's rings and trees bring over the network once for each node by themselves.
#pragma once
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/schedule.h"

namespace distsetup {

// How many members of a group share a node, one after the other; 1 where nodes do not hold whole rows of them.
int ranks_per_node(const Mesh& mesh, Group group, int gpus_per_node);
// Of reductions over `group` that go in two hops: ranks_per_node(). 0: one hop, because the plan says so, or the group lies within a
// node or has one rank on each.
int node_ranks(const Plan& plan, Group group);
// Would two hops send less over the network than one, over the ranks that share most of the parameters? Two ranks on a node that send
// bf16 gain nothing: their sums are twice as wide.
bool two_hops_send_less(const Plan& plan);

// Why a ReduceScatter or Accumulate does not go as the plan says; empty: it does. has_node_sums: it reads what the ranks of a node
// have added up.
std::string hop_problem(const Plan& plan, const Schedule& schedule, const Instruction& instruction, bool has_node_sums);
// Who exchanges with whom in a hop: the members of a group of `size`, ascending, that member `index` meets; itself among them.
std::vector<int> hop_members(Hop hop, int size, int index, int node_ranks);

}  // namespace distsetup
