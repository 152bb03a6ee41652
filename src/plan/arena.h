// Where span buffers lie.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// Packs lifetimes into one arena; writes offset_bytes, returns the arena's size. Lowest hole among overlapping lifetimes, several
// orders, the best kept; deterministic. `where`: the device's buffers, or the host's. Buffers that live as long as the step lie below
// all others. `action_steps`: of a pipeline, the first step of each action; few buffers live in more than one.
enum class ArenaPlace { kDevice, kHost };
int64_t pack_arena(std::vector<Buffer>& buffers, const std::vector<int>& action_steps = {}, ArenaPlace where = ArenaPlace::kDevice);

}  // namespace distsetup
