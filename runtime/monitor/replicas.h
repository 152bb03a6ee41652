// Ranks that hold the same shard must hold the same bits: a checksum over ranks tells when they drift apart (a fault of memory, a
// reduction that is not deterministic, a bug).
#pragma once
#include <span>

#include "runtime/comm/communicator.h"

namespace distsetup {

// Collective. Throws Failure, the same on every rank, naming two ranks that differ. Without replicas (world = shard_ranks) does
// nothing.
void check_replicas(Communicator& communicator, int shard_ranks, int shard_index, std::span<const float> master);

}  // namespace distsetup
