// Gradients of a unit on their way to the ranks that own them, as instructions: a ReduceScatter, of which each rank receives what the
// others have of its chunk, or one of two hops (node_reduction.h), with the sums of a node in between.
#pragma once
#include "plan/schedule_writer.h"

namespace distsetup {

// Of unit `unit`, under way until `event`: out of `full` into `received`.
struct PendingReduction {
  int unit = -1, full = -1, received = -1, event = -1;
  Hop hop = Hop::kOnly;
  int node_ranks = 0;  // Instruction::node_ranks
};

// Out of a buffer with the gradients of all ranks' chunks; of a plan that takes two hops over these ranks, the first.
PendingReduction write_reduction(ScheduleWriter& writer, int unit, int full, Dtype dtype);
// What a first hop has brought is added up, and the second begins. Frees both of the first one's buffers.
PendingReduction write_second_hop(ScheduleWriter& writer, const PendingReduction& arrived);

}  // namespace distsetup
