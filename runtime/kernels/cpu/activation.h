// Activations of a feed-forward block beside SwiGLU (swiglu.h), gated or not.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

#include "runtime/kernels/activation.h"

namespace distsetup::cpu {

// y = f(x) over n elements; dx = dy · f'(x), where dx may be x.
template <Activation kF, class E>
void activation(const E* x, E* y, int64_t n);
template <Activation kF, class E>
void activation_backward(const E* dy, const E* x, E* dx, int64_t n);
// gu rows are gate, then up: m = f(gate) · up. dgu may be gu.
template <Activation kF, class E>
void gated_activation(const E* gu_T2F, E* m_TF, int64_t T, int64_t F);
template <Activation kF, class E>
void gated_activation_backward(const E* dm_TF, const E* gu_T2F, E* dgu_T2F, int64_t T, int64_t F);

// c = a + b over n elements; c may be a or b.
template <class E>
void add(const E* a, const E* b, E* c, int64_t n);

}  // namespace distsetup::cpu
