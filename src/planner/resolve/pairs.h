// What a batch counts under DPO. A sample is a pair, and each trainer runs both of its sequences in one forward: TRL's DPOTrainer,
// OpenRLHF, torchtune (concatenated_forward) and the bundled trainer.
#pragma once
#include <cstdint>

#include "plan/plan.h"

namespace distsetup {

inline int64_t sequences_of_sample(const Plan& plan) { return learns_preferences(plan.train) ? 2 : 1; }
// Of one optimizer step, with padding.
inline int64_t tokens_of_step(const Plan& plan) {
  return plan.train.global_batch * sequences_of_sample(plan) * plan.train.sequence_length;
}

}  // namespace distsetup
