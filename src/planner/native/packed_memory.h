// The memory of a rank class to the byte, from its expanded lists: every buffer has a name, a class, steps it lives in and a place in
// the arena.
#pragma once
#include "plan/plan.h"
#include "plan/schedule.h"

namespace distsetup {

// All but by_rank_class and what follows from the interval of the need.
// Of a plan that offloads: what a rank has on its host, by the largest of the lists that it runs.
int64_t host_bytes_of_rank(const Plan& plan);
MemoryPlan packed_memory(const Plan& plan, const Schedule& step, const Schedule& evaluate);

}  // namespace distsetup
