// Where span buffers lie.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// Packs lifetimes into one arena; writes offset_bytes, returns the arena's size. Lowest hole among overlapping lifetimes, several
// orders, the best kept; deterministic.
int64_t pack_arena(std::vector<Buffer>& buffers);

}  // namespace distsetup
