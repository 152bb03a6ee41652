// One memory model per framework, behind simulate_memory() and replay_memory() of setup.h. Each says what its framework keeps alive,
// in which pool, and when; formulas and events name the framework's source they follow.
#pragma once
#include "planner/frameworks/setup.h"

namespace distsetup {

MemoryEstimate fsdp_memory(const Setup& setup, Depth depth);       // FSDP1, FSDP2, DDP and one GPU (frameworks/fsdp*.cc)
MemoryEstimate deepspeed_memory(const Setup& setup, Depth depth);  // ZeRO stages 0-3
MemoryEstimate megatron_memory(const Setup& setup, Depth depth);   // distributed optimizer, TP, SP, PP, CP, EP

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
