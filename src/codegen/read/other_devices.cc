#include "codegen/read/other_devices.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"

namespace distsetup {

// torch_xla runs on what PJRT_DEVICE says, and variables of Neuron's are Trainium's: their cores are no GPUs.
Diagnostics other_devices(const foreign::Document& document) {
  const foreign::EnvironmentSetting* found = nullptr;
  for (const foreign::EnvironmentSetting& one : document.environment) {
    if (found == nullptr && (one.name == "NEURON_CC_FLAGS" || one.name.starts_with("NEURON_RT_"))) found = &one;
    if (one.name != "PJRT_DEVICE") continue;
    if (one.value != "NEURON" && one.value != "TPU") return {};
    found = &one;
  }
  if (found == nullptr) return {};
  return {error(code::kConflict, document.place(found->span.begin),
                fmt::format("'{}={}' is of {}, expected GPUs: no plan has them", found->name, found->value,
                            found->value == "TPU" ? "TPUs" : "Trainium"))};
}

}  // namespace distsetup
