// The memory of a rank class to the byte, from its expanded lists: every buffer has a name, a class, steps it lives in and a place in
// the arena.
#pragma once
#include "plan/plan.h"
#include "plan/schedule.h"

namespace distsetup {

// All but by_rank_class and what follows from the interval of the need.
MemoryPlan packed_memory(const Plan& plan, const Schedule& step, const Schedule& evaluate);

}  // namespace distsetup
