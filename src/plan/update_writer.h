// What ranks do together between the gradient norm and the optimizer's step, because a rank's shard of a parameter is not enough:
//   adafactor  FactorSums, AllReduce: squares of gradients summed over each row and each column, and squares of each parameter.
//              FactorMeans, AllReduce: the means moved on; squares of each parameter's update
//   muon       for each unit with matrices: Momentum, AllGather, Orthogonalize (each rank the matrices it has, zeros elsewhere),
//              ReduceScatter, Accumulate: in place of the matrices' gradients stands what the step takes. A unit is gathered while the
//              one before it is orthogonalised. Where the optimizer is the host's, Momentum is, and the device has each unit on its
//              way.
// All of it goes over the group that shards parameters. The rules of these instructions are update_rules.h's.
#pragma once
#include <vector>

#include "plan/schedule_writer.h"

namespace distsetup {

class HostWriter;

// Run buffers of the list.
struct UpdateBuffers {
  int master = -1, gradient = -1, sumsq = -1;
  std::vector<int> states;
};
// Returns the buffers that the optimizer's step reads, and after which they are free. Nothing for other optimizers.
std::vector<int> write_update(ScheduleWriter& writer, const UpdateBuffers& buffers);
// Of an optimizer on the host.
void write_muon(ScheduleWriter& writer, const UpdateBuffers& buffers, HostWriter& host);

}  // namespace distsetup
