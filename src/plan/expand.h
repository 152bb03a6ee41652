// The op level: each instruction as the steps of its program, every tensor a buffer, all span buffers in one arena (arena.h).
#pragma once
#include "plan/schedule.h"

namespace distsetup {

void expand(Schedule& schedule);
Schedule compile_expanded(const Plan& plan, Phase phase, int stage = 0);

}  // namespace distsetup
