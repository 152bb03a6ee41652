// Ranks that hold the same shard must hold the same bits: a checksum over ranks tells when they drift apart (a fault of memory, a
// reduction that is not deterministic, a bug).
#pragma once
#include <span>

#include "plan/layout.h"
#include "runtime/comm/communicator.h"

namespace distsetup {

// Collective. Throws Failure, the same on every rank, naming two ranks that differ. Where no rank holds what another does it does
// nothing.
void check_replicas(Communicator& communicator, const Layout& layout, std::span<const float> master);

// Collective. CHECKs that all ranks have taken the same number of steps.
void check_same_step(Communicator& communicator, int64_t steps_done);

}  // namespace distsetup
