// What the CUDA device computes with: our kernels, libtorch's GEMMs and attention.
#pragma once
#include <ATen/core/Tensor.h>

#include "runtime/engine/ops.h"
#include "runtime/kernels/cuda/kernels.h"

namespace distsetup::cuda {

// One device per process: the last one made. Its streams live as long as the process.
std::unique_ptr<Kernels> make_kernels(int device_index, StreamHandle compute, StreamHandle gather, StreamHandle reduce);

// Of that device.
c10::Device device();
int capability_major();
at::Tensor tensor(const Argument& a);

}  // namespace distsetup::cuda
