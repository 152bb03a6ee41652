// Bytes library calls take for themselves. Sources:
//   cpu: read off a metering allocator around each call of libtorch 2.11 (one thread); flash attention allocates its block scratch
//        from ATen (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp: per thread qBlock × kvBlock scores, row maxima and sums, and an
//        fp32 output block); bf16 GEMMs take oneDNN scratch that depends on its choice of blocking and is bounded here by a table.
//   cuda: cuBLAS workspace 32 MiB per handle and stream on Hopper and later, 8,519,680 bytes before (aten/src/ATen/cuda/CublasHandlePool.cpp);
//        flash attention backward keeps an fp32 accumulator of dq (T·a·d·4 bytes, FlashAttention-2).
// What the ops of our own kernels take is nothing.
#include "plan/workspace.h"

#include <algorithm>

namespace distsetup {
namespace {

constexpr int64_t kCublasWorkspaceBytes = 32 * (int64_t{1} << 20);

int64_t cpu_attention_forward(const Symbols& s) {
  // Query blocks of 256 rows from 768 queries on, 64 from 192 on, else 32; key blocks of 512.
  const int64_t S = s.at("S"), d = s.at("d");
  const int64_t q_split = S >= 768 ? 256 : S >= 192 ? 64 : 32;
  const int64_t q = std::min(q_split, S), kv = std::min<int64_t>(512, S);
  return (q * kv + 2 * q + q * d) * 4;
}

}  // namespace

int64_t workspace_bytes(const Step& step, const Schedule& schedule, Accelerator accelerator) {
  const Symbols& s = schedule.symbols;
  const bool attention = step.kernel.starts_with("attention");
  const bool backward = step.kernel.ends_with("backward");
  if (accelerator == Accelerator::kCuda) {
    if (attention && backward) return s.at("T") * s.at("a") * s.at("d") * 4;
    return step.kernel.starts_with("linear") ? kCublasWorkspaceBytes : 0;
  }
  if (attention && !backward && schedule.compute == Dtype::kF32) return cpu_attention_forward(s);
  return 0;
}

}  // namespace distsetup
