// The head's loss where sequences are learned from in pairs (direct preference optimization, Rafailov et al., arXiv 2305.18290). A
// micro-batch of n pairs is 2 n sequences: 2 i is the answer that was chosen, 2 i + 1 the one that was rejected. In place of the
// cross-entropy stand
//
//   z, targets            cross_entropy_local  row_stats[T, 3]           gathered over tp
//   targets, row_stats    sequence_logps       sequence_logps[B, 2]      gathered over cp
//   sequence_logps, ...   dpo_<loss>           coefficients[B], and the numbers below
//   z, ..., coefficients  logits_gradient      dz
//
// What the reference makes of the same sequences is a run buffer, `reference_logps`; what the model makes of them is left in
// `policy_logps`: a forward of the model that training starts from fills the other one.
#pragma once
#include "plan/native_program.h"
#include "plan/program_builder.h"

namespace distsetup {

// What the run buffer `loss` then holds: means over the pairs of a step, named as TRL names them.
enum PreferenceNumber {
  kPreferenceLoss,
  kRewardsChosen,
  kRewardsRejected,
  kRewardAccuracies,
  kLogpsChosen,
  kLogpsRejected,
  kNumPreferenceNumbers
};

// Adds the ops above for `loss`, a cross_entropy: z, targets, loss_scale, loss -> dz, loss.
void add_preference_loss(const Op& loss, const ProgramSplit& split, ProgramBuilder& builder);

// What the bundled trainer refuses of a plan that learns preferences, each by name.
Diagnostics check_preference(const Plan& plan);

}  // namespace distsetup
