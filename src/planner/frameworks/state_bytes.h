// Bytes per parameter that training keeps between steps.
#pragma once
#include "planner/frameworks/setup.h"

namespace distsetup {

// Bytes per parameter that a rank holds between steps, before sharding (parameter, gradient, moments, master), for trained ones.
struct StateBytes {
  double parameter = 0, gradient = 0, optimizer = 0;
};
StateBytes state_bytes(const Setup& setup);
StateBytes stored_state_bytes(const Setup& setup);  // with pages that are in host memory: what a checkpoint holds
// Of parameters that Muon leaves to AdamW: embedding, head, norms and biases (torchtitan, Megatron-Core).
StateBytes adam_state_bytes(const Setup& setup);

// Whether DPO's reference is a second set of weights. With adapters it is the model with its adapters switched off (TRL, DPOTrainer).
inline bool holds_reference(const Setup& setup) { return setup.frozen_reference && setup.finetune == Finetune::kFull; }

// DPO takes log-probabilities of whole logits, of the reference after the policy's own: bytes of one fp32 tensor of logits, of which
// four are there then, logits and log-softmax of both (TRL, DPOTrainer.compute_loss; LLaMA-Factory, train/dpo/trainer.py). 0: there is
// no such tensor, because the head is in the loss or its logits are split.
int64_t reference_logits_bytes(const Setup& setup, int64_t num_tokens);
inline constexpr int kLogitsAtReference = 4;

}  // namespace distsetup
