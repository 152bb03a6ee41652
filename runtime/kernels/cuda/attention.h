// libtorch's attention kernels under the names that programs use; what each takes and which is chosen when: attention.cc.
#pragma once
#include <map>
#include <string>

#include "runtime/engine/aten_views.h"
#include "runtime/kernels/cuda/ops.h"
#include "runtime/kernels/cuda/own_ops.h"

namespace distsetup::cuda {

struct LibtorchKernel {
  MakeViews views;
  OpFunction f32, half;  // half: of both 16-bit types
};
const std::map<std::string, LibtorchKernel>& attention_kernels();
// Why this device cannot run an attention kernel with these shapes; "": it can.
std::string attention_refusal(const std::string& kernel, const Call& call);
// Another kernel that does the same faster here, where there is one.
void take_faster(Call& call);

}  // namespace distsetup::cuda
