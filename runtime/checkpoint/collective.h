// Loading and finding checkpoints together: every rank calls each function, at the same step, with the same arguments. A failure on
// one rank is a failure of all (monitor/failure.h). Saving them: saver.h.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/communicator.h"
#include "runtime/optim/initialize.h"

namespace distsetup {

// What a run begins with when its plan names published weights (load_weights.h). Throws Failure.
void load_planned_weights(Communicator& communicator, const Plan& plan, const std::string& plan_directory, const ShardState& state);
// What is frozen, at the start of every run: out of published weights where the plan names some, else the seed's first values. Returns
// its digest (CheckpointMetadata::frozen_digest); "": nothing is frozen. Throws Failure.
std::string load_planned_frozen(Communicator& communicator, const Plan& plan, const std::string& plan_directory, const Layout& layout,
                                const StoreFrozen& store);

struct FoundCheckpoint {
  std::optional<CheckpointMetadata> newest;              // the newest that is valid; none: start from the beginning
  std::vector<std::pair<int64_t, std::string>> refused;  // newer ones and why, for this rank to print
  std::set<int64_t> refused_steps;                       // the same on every rank
};
// Throws Failure when there are committed checkpoints and none is valid: starting over would hide the loss.
FoundCheckpoint find_checkpoint(Communicator& communicator, const std::string& directory);

}  // namespace distsetup
