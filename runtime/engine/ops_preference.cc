// Sums are formed in the order of rows and of ranks: whichever thread has a sequence, the bits are the same.
#include "runtime/engine/ops_preference.h"

#include <array>
#include <vector>

#include "plan/preference_loss.h"
#include "runtime/engine/ops_table.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/preference.h"

namespace distsetup {

static_assert(kPreferenceLoss == 0 && kRewardsChosen == 1 && kRewardsRejected == 2 && kRewardAccuracies == 3 && kLogpsChosen == 4 &&
              kLogpsRejected == 5 && kNumPreferenceNumbers == kNumPairNumbers);

namespace {

// targets, row_stats of all tp ranks -> sequence_logps [B, 2]
void sequence_logps(const Call& c) {
  const int64_t B = c.writes[0].dim(0), T = c.reads[0].dim(0), rows = T / B;
  parallel_ranges(B, rows * 64, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      double sum = 0;
      int64_t tokens = 0;
      for (int64_t t = b * rows; t < (b + 1) * rows; ++t) {
        if (in<int64_t>(c, 0)[t] < 0) continue;
        sum += cpu::target_logp(in<float>(c, 1) + t * kLossStats, c.context->tp, T * kLossStats);
        ++tokens;
      }
      out<double>(c, 0)[2 * b] = sum;
      out<double>(c, 0)[2 * b + 1] = double(tokens);
    }
  });
}

// Of sequence b, what all cp ranks found of it together.
SequenceLogp sequence_at(const Call& c, int64_t b) {
  const int64_t B = c.writes[0].dim(0);
  double sum = 0, tokens = 0;
  for (int rank = 0; rank < c.context->cp; ++rank) {
    const double* found = in<double>(c, 0) + 2 * (rank * B + b);
    sum += found[0], tokens += found[1];
  }
  return {float(sum), tokens, 0};
}

// sequence_logps -> reference_logps
void reference_logps(const Call& c) {
  for (int64_t b = 0; b < c.writes[0].dim(0); ++b) out<float>(c, 0)[b] = sequence_at(c, b).logp;
}

// sequence_logps, reference_logps, loss_scale, loss -> coefficients, loss, policy_logps. Ranks that share sequences find the same
// numbers: the first of them adds its.
template <PairLoss kLoss>
void preference(const Call& c) {
  const int64_t B = c.writes[0].dim(0);
  const double scale = *in<double>(c, 2);
  const PairLossShape shape = {kLoss, c.attributes->beta, c.attributes->label_smoothing};
  for (int64_t b = 0; b < B; b += 2) {
    SequenceLogp chosen = sequence_at(c, b), rejected = sequence_at(c, b + 1);
    chosen.reference = in<float>(c, 1)[b], rejected.reference = in<float>(c, 1)[b + 1];
    out<float>(c, 2)[b] = chosen.logp;
    out<float>(c, 2)[b + 1] = rejected.logp;
    PairNumbers found;
    const bool counts = pair_numbers(chosen, rejected, shape, found);
    out<double>(c, 0)[b] = found.coefficient_chosen * scale;
    out<double>(c, 0)[b + 1] = found.coefficient_rejected * scale;
    for (int i = 0; i < kNumPairNumbers && counts && c.context->cp_index == 0; ++i) out<double>(c, 1)[i] += found.numbers[i] * scale;
  }
}

// z, targets, row_stats of all tp ranks, coefficients -> dz
template <class E>
void logits_gradient(const Call& c) {
  const int64_t B = c.reads[3].dim(0), T = c.reads[0].dim(0), V = c.reads[0].dim(1), rows = T / B;
  parallel_ranges(T, 2 * V * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    double unused = 0;
    for (int64_t t = begin; t < end; ++t)
      cpu::cross_entropy_finish<E>(in<E>(c, 0) + t * V, in<int64_t>(c, 1) + t, in<float>(c, 2) + t * kLossStats, c.context->tp,
                                   T * kLossStats, out<E>(c, 0) + t * V, &unused, 1, V, in<double>(c, 3)[t / rows],
                                   own_vocabulary(*c.context, V), {float(c.attributes->multiplier), float(c.attributes->soft_cap)});
  });
}

constexpr std::array kTable = {
    NativeOp{"sequence_logps", sequence_logps, sequence_logps, sequence_logps},
    NativeOp{"reference_logps", reference_logps, reference_logps, reference_logps},
    NativeOp{"dpo_sigmoid", preference<PairLoss::kSigmoid>, preference<PairLoss::kSigmoid>, preference<PairLoss::kSigmoid>},
    NativeOp{"dpo_hinge", preference<PairLoss::kHinge>, preference<PairLoss::kHinge>, preference<PairLoss::kHinge>},
    NativeOp{"dpo_ipo", preference<PairLoss::kIpo>, preference<PairLoss::kIpo>, preference<PairLoss::kIpo>},
    NativeOp{"logits_gradient", logits_gradient<float>, logits_gradient<Bf16>, logits_gradient<F16>}};

}  // namespace

bool bind_preference_op(const std::string& kernel, Call& call) {
  call.function = find_op(kTable, kernel, call);
  return call.function != nullptr;
}

}  // namespace distsetup
