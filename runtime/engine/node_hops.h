// Reductions in two hops (plan/node_reduction.h) as a rank runs them: pieces of a unit's gradients to and from the ranks of its node,
// then a node's sums to and from the ranks of its place, and what is added up behind each.
#pragma once
#include <memory>

#include "plan/layout.h"
#include "plan/schedule.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/ops.h"

namespace distsetup {

// A kReduceScatter that is one of two hops, under way.
std::unique_ptr<Work> start_hop(const Instruction& instruction, const Call& call, Communicator& communicator);
// The kAccumulate behind it: into a node's sums, or of these into the gradient shard. Valid elements only.
void accumulate_hop(const Instruction& instruction, const Call& call, const Layout& layout, const Coordinates& at,
                    const Kernels& kernels);

}  // namespace distsetup
