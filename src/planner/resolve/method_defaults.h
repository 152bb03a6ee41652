// What is assumed of the optimizer by method and by what is trained: presets/training/defaults.yaml.
#pragma once
#include <cstdint>
#include <string>

#include "model/presets.h"

namespace distsetup {

struct MethodDefaults {
  double learning_rate = 0, weight_decay = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  int64_t batch_tokens = 0, batch_samples = 0;  // of a step; one of them
  std::string source;
  double momentum = 0;             // of optimizers that have one
  std::string learning_rate_note;  // of the optimizer: what to think of a rate that was chosen by method
};
// `finetune`: full, or the kind of adapters. Errors: no row, or mistakes of the file.
Result<MethodDefaults> method_defaults(const Presets& presets, std::string_view method, std::string_view finetune);
// What an optimizer assumes otherwise, if it does: over what its method does. Errors: mistakes of the file.
Diagnostics apply_optimizer_defaults(const Presets& presets, std::string_view optimizer, MethodDefaults& defaults);

}  // namespace distsetup
