// Accelerators that are no GPUs, by the variables that a script sets.
#pragma once
#include "codegen/read/document.h"

namespace distsetup {

// An error where the script is for TPUs or Trainium.
Diagnostics other_devices(const foreign::Document& document);

}  // namespace distsetup
