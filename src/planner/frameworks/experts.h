// How the layers of a program run their experts, which decides rows, launches and copies. Transformers 4 goes through the experts one
// by one; what it loops over are modules (Mixtral, Qwen, DeepSeek, GLM) or slices of a stack (GraniteMoe, GPT-OSS). Transformers 5 has
// one grouped product (integrations/moe.py: grouped_mm where PyTorch has it, else the loop). Llama 4 sends every token to every expert
// in both, with an input of zeros where it is not chosen (modeling_llama4.py, Llama4TextMoe). Other programs group.
#pragma once
#include "planner/frameworks/setup.h"

namespace distsetup {

enum class ExpertKernels { kGrouped, kModulesInTurn, kSlicesInTurn, kEveryToken };

ExpertKernels expert_kernels(const Setup& setup);

inline bool runs_in_turn(ExpertKernels kernels) {
  return kernels == ExpertKernels::kModulesInTurn || kernels == ExpertKernels::kSlicesInTurn;
}

// What an expert in turn has Python start in forward: its rows looked up (two kernels) and picked, three products, SiLU, product,
// weights picked, weighted, cast and added. GraniteMoe sorts the rows before: a slice and a product, twice.
double launches_per_expert(const Setup& setup);

// What an expert has PyTorch do in forward where its adapters pass one expert after the other: its rows and nine matrices sliced out
// of their stacks and turned, nine products, three sums scaled and added, SwiGLU (prime-rl, models/layers/lora/multi_moe.py,
// _forward_for_loop: on GPUs that are no Hopper). 0 elsewhere.
double operations_per_adapted_expert(const Setup& setup);

// Experts that compute a token's row: those that it chose, or all.
int64_t experts_computed(const Setup& setup);

// bitsandbytes replaces linear modules; a stack only where the tool does that itself.
bool quantises_experts(const Setup& setup);

}  // namespace distsetup
