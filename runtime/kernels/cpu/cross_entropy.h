// The loss.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

namespace distsetup::cpu {

// loss += scale · sum over rows of (log sum exp(z) - z[target]); dz = (softmax(z) - onehot(target)) · scale. A target of -1 adds
// nothing and its row of dz is zero. dz may be z. row_loss (null: not wanted) takes each row's part of that sum, unscaled, and then
// loss is not added to.
template <class E>
void cross_entropy(const E* z_TV, const int64_t* target_T, E* dz_TV, double* loss, int64_t T, int64_t V, double scale,
                   double* row_loss_T = nullptr);

// The same of logits that are multiplied first, and then capped: cap · tanh(z / cap), cap 0: not.
template <class E>
void cross_entropy_shaped(const E* z_TV, const int64_t* target_T, E* dz_TV, double* row_loss_T, int64_t T, int64_t V, double scale,
                          float multiplier, float soft_cap);

}  // namespace distsetup::cpu
