// What a pair of sequences costs, chosen against rejected, on every device. Source: TRL 1.16, trainer/dpo_trainer.py, _compute_loss:
// sigmoid, hinge and ipo, the last one averaged per token; with label_smoothing the sigmoid is cDPO's (Mitchell, 2023).
#pragma once
#include <cmath>
#include <cstdint>

#include "runtime/kernels/positions.h"

namespace distsetup {

enum class PairLoss { kSigmoid, kHinge, kIpo };

struct PairLossShape {
  PairLoss loss = PairLoss::kSigmoid;
  double beta = 0.1, label_smoothing = 0;
};

// Of one sequence: the log-probability of its trained tokens together, how many they are, and what the reference makes of them.
// log-probabilities are rounded to fp32, as those of the reference were when they were kept.
struct SequenceLogp {
  float logp = 0;
  double tokens = 0;
  float reference = 0;
};

// The loss, and its derivatives by both log-probabilities.
struct PairResult {
  double loss = 0, by_chosen = 0, by_rejected = 0, reward_chosen = 0, reward_rejected = 0;
};

DISTSETUP_ANYWHERE inline PairResult pair_loss(const SequenceLogp& chosen, const SequenceLogp& rejected, const PairLossShape& shape) {
  const double chosen_ratio = double(chosen.logp) - double(chosen.reference),
               rejected_ratio = double(rejected.logp) - double(rejected.reference);
  PairResult out;
  out.reward_chosen = shape.beta * chosen_ratio;
  out.reward_rejected = shape.beta * rejected_ratio;
  const double margin = out.reward_chosen - out.reward_rejected;
  if (shape.loss == PairLoss::kIpo) {
    const double chosen_tokens = chosen.tokens < 1 ? 1 : chosen.tokens, rejected_tokens = rejected.tokens < 1 ? 1 : rejected.tokens;
    const double off = chosen_ratio / chosen_tokens - rejected_ratio / rejected_tokens - 1 / (2 * shape.beta);
    out.loss = off * off;
    out.by_chosen = 2 * off / chosen_tokens;
    out.by_rejected = -2 * off / rejected_tokens;
    return out;
  }
  double by_margin = 0;
  if (shape.loss == PairLoss::kHinge) {
    out.loss = margin < 1 ? 1 - margin : 0;
    by_margin = margin < 1 ? -1 : 0;
  } else {
    const double small = exp(margin < 0 ? margin : -margin);  // never overflows
    const double right = margin < 0 ? small / (1 + small) : 1 / (1 + small), log_sum = log1p(small);
    // -log sigmoid of the margin, and of its opposite
    const double if_right = log_sum + (margin < 0 ? -margin : 0), if_wrong = log_sum + (margin < 0 ? 0 : margin);
    out.loss = (1 - shape.label_smoothing) * if_right + shape.label_smoothing * if_wrong;
    by_margin = right - (1 - shape.label_smoothing);
  }
  out.by_chosen = shape.beta * by_margin;
  out.by_rejected = -out.by_chosen;
  return out;
}

// What a pair adds to its micro-batch.
inline constexpr int kNumPairNumbers = 6;
struct PairNumbers {
  // dz = coefficient · (softmax - onehot): that is the gradient of minus the log-probability.
  double coefficient_chosen = 0, coefficient_rejected = 0;
  double numbers[kNumPairNumbers] = {};  // in the order of PreferenceNumber (src/plan/preference_loss.h)
};
// False: a pair without trained tokens fills its batch up and counts for nothing.
DISTSETUP_ANYWHERE inline bool pair_numbers(const SequenceLogp& chosen, const SequenceLogp& rejected, const PairLossShape& shape,
                                            PairNumbers& out) {
  if (chosen.tokens + rejected.tokens == 0) return false;
  const PairResult pair = pair_loss(chosen, rejected, shape);
  out.coefficient_chosen = -pair.by_chosen;
  out.coefficient_rejected = -pair.by_rejected;
  out.numbers[0] = pair.loss;
  out.numbers[1] = pair.reward_chosen;
  out.numbers[2] = pair.reward_rejected;
  out.numbers[3] = pair.reward_chosen > pair.reward_rejected ? 1 : 0;
  out.numbers[4] = double(chosen.logp);
  out.numbers[5] = double(rejected.logp);
  return true;
}

}  // namespace distsetup
