#include "planner/frameworks/experts.h"

namespace distsetup {
namespace {

constexpr int kTransformers5 = 202601;  // 5.0.0, 2026-01-26

}  // namespace

ExpertKernels expert_kernels(const Setup& s) {
  using enum ExpertKernels;
  if (s.model.num_experts == 0 || !s.program.starts_with("hf_")) return kGrouped;
  const std::string& layer = s.model.layer_class;
  if (layer.starts_with("Llama4")) return kEveryToken;
  if (s.grouped_experts || s.software.released == 0 || s.software.released >= kTransformers5) return kGrouped;
  return layer.starts_with("GraniteMoe") || layer.starts_with("GptOss") ? kSlicesInTurn : kModulesInTurn;
}

double launches_per_expert(const Setup& s) {
  if (!runs_in_turn(expert_kernels(s))) return 0;
  return s.model.layer_class.starts_with("GraniteMoe") ? 4 : 12;
}

double operations_per_adapted_expert(const Setup& s) {
  const bool in_turn = s.adapters_in_turn && s.finetune != Finetune::kFull && s.model.num_experts > 0;
  return in_turn ? 1 + 9 * 2 + 9 + 3 * 2 + 2 : 0;
}

int64_t experts_computed(const Setup& s) {
  return expert_kernels(s) == ExpertKernels::kEveryToken ? s.model.num_experts : s.model.experts_per_token;
}

bool quantises_experts(const Setup& s) {
  return s.finetune == Finetune::kQlora && (s.quantized_experts || expert_kernels(s) == ExpertKernels::kModulesInTurn);
}

}  // namespace distsetup
