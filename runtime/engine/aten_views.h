// Tensors over a call's operands, made once when the step is bound. Shared by libtorch's kernels of every device.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace distsetup {

struct AtenViews {
  std::vector<at::Tensor> t;
};

}  // namespace distsetup
