// Kubernetes manifests that train (Job, JobSet, TrainJob, PyTorchJob) as keys: how many machines with how many GPUs, and what stands
// around them. What their commands start is read as the lines of a script are (read_file.cc).
#pragma once
#include <vector>

#include "codegen/read/document.h"
#include "codegen/read/found.h"

namespace distsetup {

std::vector<FoundKey> keys_of_manifest(const foreign::Document& document);

// Of a SkyPilot task.
std::vector<FoundKey> keys_of_task(const foreign::Document& document);

}  // namespace distsetup
