// Ring attention (src/plan/ring_attention.h) on CUDA: libtorch's kernels for the keys of one rank at a time, own kernels to join what
// they give.
#pragma once
#include <map>
#include <string>

#include "runtime/kernels/cuda/attention.h"

namespace distsetup::cuda {

const std::map<std::string, LibtorchKernel>& ring_kernels();

}  // namespace distsetup::cuda
