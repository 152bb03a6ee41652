// What libraries take beside tensors: workspaces that PyTorch's allocator hands out, and memory it never sees (the driver's context,
// communicators).
#pragma once
#include <cstdint>

#include "planner/frameworks/setup.h"

namespace distsetup {

// cuBLAS through PyTorch: per handle and stream, allocated (aten/src/ATen/cuda/CublasHandlePool.cpp: 32 MiB from Hopper on, else
// :4096:2:16:8, 8.1 MiB).
int64_t cublas_workspace_bytes(const Gpu& gpu);
// Transformer Engine's own (pytorch/cpp_extensions/gemm.py: 32 MiB from Hopper on, else 4 MiB; four streams of it for grouped GEMMs).
int64_t transformer_engine_workspace_bytes(const Gpu& gpu, bool grouped_gemm);

// Groups of more than one rank that the mesh needs, each with a communicator of its own.
int num_communicators(const Setup& setup);
// NCCL's buffers: per communicator, channels x protocols x peers (nccl/src/init.cc; 0.6 GiB for the first, 0.3 GiB for each further).
int64_t communicator_bytes(const Setup& setup);

// Pinned host memory comes in powers of two (c10 CachingHostAllocator).
int64_t pinned_bytes(int64_t bytes);

}  // namespace distsetup
