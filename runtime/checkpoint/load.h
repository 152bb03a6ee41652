// Reading a checkpoint back: is it whole, and the pieces of this rank, whatever mesh wrote it.
#pragma once
#include <cstdint>
#include <string>

#include "runtime/checkpoint/checkpoint.h"

namespace distsetup {

// Committed, every file there in its size, and the digests of files number `part`, `part` + `parts`, … as committed.
Result<CheckpointMetadata> verify_checkpoint(const std::string& directory, int64_t step, int part = 0, int parts = 1);
// The parameters of a checkpoint alone, from its own folder. Errors as load_shard's.
Diagnostics load_parameters(const std::string& checkpoint, const ShardState& state);
// Fills master and the optimizer's states. Errors: another model (a parameter missing, unknown, or of another shape), an optimizer
// that keeps other states, elements that no file holds.
Diagnostics load_shard(const std::string& directory, int64_t step, const ShardState& state);

}  // namespace distsetup
