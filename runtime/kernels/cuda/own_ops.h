// Our own kernels under the names that programs use.
#pragma once
#include <map>
#include <string>

#include "runtime/engine/ops.h"
#include "runtime/kernels/cuda/kernels.h"

namespace distsetup::cuda {

StreamHandle compute();  // of the one device; ops.cc
inline Element element_of(Dtype dtype) {
  return dtype == Dtype::kBf16 ? Element::kBf16 : dtype == Dtype::kF16 ? Element::kF16 : Element::kF32;
}
inline Element element(const Call& c) { return element_of(c.context->compute); }
inline bool is_16_bit(const Call& c) { return element(c) != Element::kF32; }
const std::map<std::string, OpFunction>& own_kernels();

}  // namespace distsetup::cuda
