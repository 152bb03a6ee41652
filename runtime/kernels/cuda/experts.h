// Ops of mixtures of experts on CUDA: our own kernels under the names that programs use, and the products of all experts.
#pragma once
#include <map>
#include <string>

#include "runtime/engine/ops.h"
#include "runtime/kernels/cuda/kernels.h"

namespace distsetup::cuda {

// Each row's own weight. Behind the rows of the last expert that `starts` divides there are none.
inline RowChoices own_rows(const Argument& starts) { return {nullptr, static_cast<const int64_t*>(starts.data) + starts.dim(0) - 1}; }
const std::map<std::string, OpFunction>& expert_kernels();
// Why this call of an op of experts cannot run; empty: it can.
std::string experts_refusal(const std::string& kernel, const Call& call);
bool bind_grouped_op(const std::string& kernel, Call& call);  // false: another kernel

}  // namespace distsetup::cuda
