// The gated activation of a feed-forward block.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

namespace distsetup::cpu {

// gu rows are gate, then up: m = silu(gate) · up. dgu may be gu. Source: Shazeer, arXiv 2002.05202.
template <class E>
void swiglu(const E* gu_T2F, E* m_TF, int64_t T, int64_t F);
template <class E>
void swiglu_backward(const E* dm_TF, const E* gu_T2F, E* dgu_T2F, int64_t T, int64_t F);

}  // namespace distsetup::cpu
