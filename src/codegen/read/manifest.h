// Kubernetes manifests that train (Job, JobSet, TrainJob, PyTorchJob) as keys: how many machines with how many GPUs, and what stands
// around them. What their commands start is read as the lines of a script are (read_file.cc).
#pragma once
#include <string_view>
#include <vector>

#include "codegen/lint/document.h"
#include "codegen/read/found.h"

namespace distsetup {

bool is_manifest(std::string_view text);

std::vector<Found> keys_of_manifest(const lint::Document& document);

}  // namespace distsetup
