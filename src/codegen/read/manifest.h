// Kubernetes manifests that train (kinds_of_manifests) as keys: how many machines with how many GPUs, and what stands
// around them. What their commands start is read as the lines of a script are (read_file.cc).
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/read/document.h"
#include "codegen/read/found.h"

namespace distsetup {

// Where a TrainJob or PyTorchJob says of how many processes its operator tells torchrun (PET_NPROC_PER_NODE); "": nowhere.
std::string_view processes_of_operator(const Value& root);

// Every map of a manifest, outer ones first. Containers that prepare a pod are passed over: they train nothing.
void each_map(const Value& manifest, const std::function<void(const Value&)>& see);

// The kinds that keys_of_manifest() reads, for messages.
std::string kinds_of_manifests();
std::vector<FoundKey> keys_of_manifest(const foreign::Document& document);

// Of a SkyPilot task.
// Where a manifest or a task asks for TPUs; nullptr: it does not.
const Value* tpus_in(const foreign::Document& document);

std::vector<FoundKey> keys_of_task(const foreign::Document& document);

}  // namespace distsetup
