// Ops of attention's sinks, of experts' biases and of a clipped gate on CUDA, under the names that programs use.
#pragma once
#include <map>
#include <string>

#include "runtime/engine/ops.h"

namespace distsetup::cuda {

const std::map<std::string, OpFunction>& sink_and_bias_kernels();

}  // namespace distsetup::cuda
