// What is assumed of the optimizer by method and by what is trained: presets/training/defaults.yaml.
#pragma once
#include <string>

#include "model/presets.h"

namespace distsetup {

struct MethodDefaults {
  double learning_rate = 0, weight_decay = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  std::string source;
};
// `finetune`: full, or the kind of adapters. Errors: no row, or mistakes of the file.
Result<MethodDefaults> method_defaults(const Presets& presets, std::string_view method, std::string_view finetune);

}  // namespace distsetup
