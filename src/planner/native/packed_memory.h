// The memory of a rank class to the byte, from its expanded lists: every buffer has a name, a class, steps it lives in and a place in
// the arena.
#pragma once
#include "plan/plan.h"
#include "plan/schedule.h"

namespace distsetup {

// Of a plan that offloads: what a rank has in its host's memory, and on a local disk, by the largest of the lists that it runs.
struct HostBytes {
  int64_t memory = 0, disk = 0;
};
HostBytes host_bytes_of_rank(const Schedule& load, const Schedule& step, const Schedule& evaluate);
// All but by_rank_class and what follows from the interval of the need; of what offloading keeps on hosts and disks nothing.
MemoryPlan packed_memory(const Plan& plan, const Schedule& step, const Schedule& evaluate);

}  // namespace distsetup
