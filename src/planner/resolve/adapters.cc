#include "planner/resolve/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/diagnostic_codes.h"

namespace distsetup {
namespace {

constexpr std::string_view kLoraTargets[] = {"query", "key", "value", "output", "gate", "up", "down"};

bool is_of_mlp(const std::string& target) { return target == "gate" || target == "up" || target == "down"; }

}  // namespace

void set_adapters(Setup& s, std::string_view kind) {
  constexpr int64_t kRank = 16;
  s.finetune = kind == "lora" ? Finetune::kLora : Finetune::kQlora;
  s.frozen_dtype = s.finetune != Finetune::kLora ? Dtype::kNf4Double : s.traits().frozen_keep_dtype ? s.parameter_dtype : Dtype::kBf16;
  // What an adapter computes in: FSDP gathers it in the compute type and DeepSpeed holds it so; the Trainer's DDP runs under autocast,
  // for which PEFT makes an fp32 copy of each adapter's input (peft/tuners/lora/layer.py, _cast_input_dtype).
  if (s.compute != Dtype::kF32) {
    s.autocast = s.traits().autocast;
    s.lora.dtype = s.autocast ? Dtype::kF32 : Dtype::kBf16;
  }
  s.lora.rank = kRank;
  s.lora.query = s.lora.key = s.lora.value = s.lora.output = s.lora.gate = s.lora.up = s.lora.down = true;
}

Diagnostics resolve_adapters(const Spec& spec, Problem& problem) {
  Diagnostics said;
  const auto fail = [&](const char* code, std::string message, std::string help) {
    said.push_back(error(code, spec.at("train.lora_targets"), std::move(message), std::move(help)));
  };
  Setup& s = problem.setup;
  TrainPlan& plan = problem.base.train;
  set_adapters(s, plan.finetune);
  s.lora.rank = plan.lora_rank = spec.integer("train.lora_rank").value_or(s.lora.rank);
  if (!spec.find("train.lora_rank")) problem.base.assumptions.push_back(fmt::format("adapters of rank {}", s.lora.rank));
  const std::optional<std::vector<std::string>> given = spec.list("train.lora_targets");
  plan.lora_targets = given.value_or(std::vector<std::string>(std::begin(kLoraTargets), std::end(kLoraTargets)));
  const auto wanted = [&plan](std::string_view target) {
    return std::find(plan.lora_targets.begin(), plan.lora_targets.end(), target) != plan.lora_targets.end();
  };
  bool* flags[] = {&s.lora.query, &s.lora.key, &s.lora.value, &s.lora.output, &s.lora.gate, &s.lora.up, &s.lora.down};
  for (size_t i = 0; i < std::size(kLoraTargets); ++i) *flags[i] = wanted(kLoraTargets[i]);
  for (const std::string& target : plan.lora_targets) {
    if (std::find(std::begin(kLoraTargets), std::end(kLoraTargets), target) == std::end(kLoraTargets))
      fail(code::kUnknownValue, fmt::format("'{}' is no matrix of a block, expected of: {}", target, fmt::join(kLoraTargets, ", ")),
           "");
  }
  // PEFT's all-linear names linear layers; Transformers 5 keeps the experts of a layer as one parameter, which is none, and
  // torchtitan's converter takes linear layers alone.
  const Geometry& g = problem.base.model;
  if (g.num_experts == 0 || problem.trainer.has("expert_adapters")) return said;
  const bool all_experts = std::find(g.expert_layer.begin(), g.expert_layer.end(), false) == g.expert_layer.end();
  const bool other_mlps = !all_experts || g.shared_feed_forward > 0;
  const bool mlp = given.has_value() && std::any_of(given->begin(), given->end(), is_of_mlp);
  if (mlp && !other_mlps)
    fail(code::kUnsupportedFeature,
         fmt::format("every MLP of '{}' is a stack of experts, one parameter and no linear layer: {} puts no adapters on it", g.name,
                     problem.trainer.label),
         "--lora-targets query,key,value,output, or --trainer megatron");
  else if (mlp || !given.has_value())
    problem.base.assumptions.push_back(fmt::format("adapters on attention{}, none on stacks of experts",
                                                   other_mlps ? " and on MLPs that are linear layers" : " alone"));
  return said;
}

}  // namespace distsetup
