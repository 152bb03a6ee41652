// What a run starts from when its plan names published weights: this rank's boxes of them, whatever the mesh.
#pragma once
#include <string>

#include "runtime/checkpoint/checkpoint.h"
#include "weights/folder.h"

namespace distsetup {

// The planned files, seen from the plan's directory: there, and with the headers they were planned with. Errors: kWeights.
Result<WeightsFolder> open_weights(const Plan& plan, const std::string& plan_directory);

// The planned files of adapters that adapters start from (PEFT's), seen from the plan's directory. Errors: kWeights.
Result<WeightsFolder> open_adapter(const Plan& plan, const std::string& plan_directory);

// Fills the master from the folder, and the optimizer's states with zeros. Adapters keep what they have. Reads this rank's bytes
// alone; memory beside the state: two pieces (weights/read_box.h). Errors (kWeights), naming file and tensor: what cannot be read; a
// tied head that is not the embedding.
Diagnostics load_weights(const WeightsFolder& folder, const ShardState& state);
// The parameters of adapters out of a folder of adapters.
Diagnostics load_adapter(const WeightsFolder& adapter, const ShardState& state);
}  // namespace distsetup
