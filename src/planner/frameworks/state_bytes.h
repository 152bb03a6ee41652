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

}  // namespace distsetup
