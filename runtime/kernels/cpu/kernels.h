// The trainer's own kernels on plain pointers: norms, RoPE, activations, loss, embedding, biases, casts and sums. GEMMs and most
// attention are libtorch's (runtime/engine/ops_aten.cc). E is float or Bf16; sums are formed in fp32. No kernel allocates. Shapes: T
// rows (tokens), H row width, V vocabulary, S sequence length, D head size. Rows are dense unless a stride is given. `accumulate`:
// gradients of parameters add to what is there. dx may be the same memory as any input of its shape; other outputs may not overlap
// inputs. Left out: threads. Callers split rows, columns or elements (runtime/engine/ops_native.cc); no split changes a result.
#pragma once
#include "runtime/kernels/cpu/activation.h"
#include "runtime/kernels/cpu/attention.h"
#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/cross_entropy.h"
#include "runtime/kernels/cpu/embedding.h"
#include "runtime/kernels/cpu/norm.h"
#include "runtime/kernels/cpu/reduce.h"
#include "runtime/kernels/cpu/rope.h"
#include "runtime/kernels/cpu/swiglu.h"
