// Attention over the documents of packed rows, on libtorch's kernels. In bf16 and fp16 FlashAttention 2 takes some documents at once:
// what its backward keeps for each in whole blocks stays bounded so. In fp32 they go one by one through the memory-efficient kernel.
// Where documents begin is known on the host too (OpContext::documents), so that nobody waits for the device.
#pragma once
#include <functional>

#include "runtime/kernels/cuda/attention.h"

namespace distsetup::cuda {

// By the names that programs use: of both directions, with q, k and v in one tensor and apart.
const std::map<std::string, LibtorchKernel>& document_kernels();

// Of packed rows: use(first token, the one behind the last) for each group of documents whose log-sum-exps lie together as
// [heads, tokens].
void each_group_of_sums(const Call& c, const std::function<void(int64_t begin, int64_t end)>& use);

}  // namespace distsetup::cuda
