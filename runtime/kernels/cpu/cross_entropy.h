// The loss.
// Shapes, overlaps and rounding: kernels.h.
#pragma once
#include <cstdint>

#include "runtime/kernels/vocabulary.h"

namespace distsetup::cpu {

// loss += scale · sum over rows of (log sum exp(z) - z[target]); dz = (softmax(z) - onehot(target)) · scale. A target of -1 adds
// nothing and its row of dz is zero. dz may be z. row_loss (null: not wanted) takes each row's part of that sum, unscaled, and then
// loss is not added to.
template <class E>
void cross_entropy(const E* z_TV, const int64_t* target_T, E* dz_TV, double* loss, int64_t T, int64_t V, double scale,
                   double* row_loss_T = nullptr);

// The same of logits that are multiplied first, and then capped (LogitShape).
template <class E>
void cross_entropy_shaped(const E* z_TV, const int64_t* target_T, E* dz_TV, double* row_loss_T, int64_t T, int64_t V, double scale,
                          float multiplier, float soft_cap);

// The same where each rank has the logits of a range of the vocabulary (columns z[:, 0 .. end - begin]; the rest is padding and is not
// read), in two steps. First what the others need to know of a row: its largest logit here, the sum of exp(z - largest), and the
// target's logit, 0 where it is not here; (-inf, 0, 0) of an empty range. Source: Shoeybi et al., arXiv 1909.08053, section 3.
template <class E>
void cross_entropy_local(const E* z_TV, const int64_t* target_T, float* stats_T3, int64_t T, int64_t V, VocabularyRange range,
                         LogitShape shape);
// Then, from what all `size` ranks found (member p's rows begin at all_stats + p · member_stride), the loss of the whole rows, the
// same bits on every rank, and dz of these columns; padding gets 0. dz may be z.
template <class E>
void cross_entropy_finish(const E* z_TV, const int64_t* target_T, const float* all_stats, int64_t size, int64_t member_stride,
                          E* dz_TV, double* row_loss_T, int64_t T, int64_t V, double scale, VocabularyRange range, LogitShape shape);

// log softmax(z)[target] of a row, from what all ranks found of it.
double target_logp(const float* stats, int64_t size, int64_t member_stride);

}  // namespace distsetup::cpu
