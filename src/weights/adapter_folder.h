// A folder of adapters as PEFT writes it: adapter_config.json and adapter_model.safetensors. Only LoRA on linear layers is read; what
// a configuration says beyond that and changes results is refused by name. Source of the keys and what they mean: PEFT,
// src/peft/tuners/lora/config.py.
#pragma once
#include <string>
#include <vector>

#include "plan/tuning.h"
#include "weights/folder.h"

namespace distsetup {

struct AdapterFolder {
  int64_t rank = 0;
  double alpha = 0;
  bool rslora = false;
  std::vector<std::string> targets;  // ends of names of modules, as tuning.h has them
  WeightsFolder weights;             // tensors by the names that they have beside the text model alone
};

// Errors (kWeights): no such files, another kind of adapter, tensors that are not the halves of adapters of that rank. A warning: they
// were trained with dropout.
Result<AdapterFolder> read_adapter_folder(const std::string& directory);
// The same tensors for a plan that was made with them. Errors as read_planned_weights.
Result<WeightsFolder> read_planned_adapter(const WeightsPlan& plan, const std::string& directory);

}  // namespace distsetup
