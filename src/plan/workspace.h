// Bytes that library operations take for themselves while they run, by op kernel, device, dtype and shape. A table with its sources:
// the trainer's meter compares it with what is really allocated (see tests/runtime).
#pragma once
#include <string_view>

#include "plan/schedule.h"

namespace distsetup {

// On CPU, attention with a window shorter than the sequence or with a soft cap, of a rank's own queries with the keys of all, or in
// fp16 is a kernel of our own, which takes nothing.
inline bool has_own_attention(std::string_view kernel, const OpAttributes& a, int64_t sequence_length, Dtype compute) {
  const bool is_plain = a.soft_cap == 0 && (a.window == 0 || a.window >= sequence_length);
  return kernel.starts_with("attention_shared") || (kernel.starts_with("attention") && (compute == Dtype::kF16 || !is_plain));
}

// On CUDA attention takes so many documents of packed rows at once.
inline constexpr int64_t kDocumentsAtOnce = 64;

int64_t workspace_bytes(const Step& step, const Schedule& schedule, Accelerator accelerator);

}  // namespace distsetup
