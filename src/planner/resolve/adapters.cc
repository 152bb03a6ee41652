#include "planner/resolve/adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/diagnostic_codes.h"
#include "plan/frozen.h"
#include "plan/layout.h"
#include "plan/native_program.h"
#include "plan/published_order.h"
#include "planner/resolve/lora_modules.h"

namespace distsetup {
namespace {

constexpr std::string_view kLoraTargets[] = {"query", "key", "value", "output", "gate", "up", "down"};

// What the parameters of a block are called in the families that most others follow.
constexpr std::pair<std::string_view, std::string_view> kModules[] = {{"query", "q_proj"},  {"key", "k_proj"},     {"value", "v_proj"},
                                                                      {"output", "o_proj"}, {"gate", "gate_proj"}, {"up", "up_proj"},
                                                                      {"down", "down_proj"}};

std::string in_words_of_modules(std::string target) {
  if (target == "all") return std::string(kAllLinear);
  for (const auto& [word, module] : kModules)
    if (target == word) return std::string(module);
  return target;
}

std::vector<std::string> in_words_of_matrices(const std::vector<std::string>& targets, const Geometry& model) {
  std::vector<std::string> out;
  for (const std::string& target : targets) {
    if (target == kAllLinear || target == "all") return {std::begin(kLoraTargets), std::end(kLoraTargets)};
    for (std::string& matrix : matrices_of_module(target, model))
      if (std::find(out.begin(), out.end(), matrix) == out.end()) out.push_back(std::move(matrix));
  }
  return out;
}

bool is_of_mlp(const std::string& target) { return target == "gate" || target == "up" || target == "down"; }

// The folder's tensors are the adapters of the plan, no others.
std::string other_adapters(const AdapterFolder& folder, const Plan& plan) {
  std::set<std::string> found;
  for (const UnitLayout& unit : make_layout(plan.model, {}, Sharding::kZero3, 0, 1, tuning_of(plan.train)).units) {
    for (const Parameter& p : unit.parameters) {
      if (!is_adapter_name(p.name)) continue;
      const auto tensor = folder.weights.tensors.find(peft_name(p.name));
      if (tensor == folder.weights.tensors.end()) return fmt::format("it has no '{}'", peft_name(p.name));
      if (tensor->second.entry.shape != published_shape(p))
        return fmt::format("'{}' is {}, expected {}", peft_name(p.name), tensor->second.entry.shape, published_shape(p));
      found.insert(tensor->first);
    }
  }
  for (const auto& [name, tensor] : folder.weights.tensors)
    if (!found.contains(name)) return fmt::format("'{}' is on no module that is trained here", name);
  return "";
}

// Modules that a folder lists one by one, as their last names where these mean the same.
std::vector<std::string> last_names(const AdapterFolder& folder, Plan plan) {
  std::set<std::string> names;
  for (const std::string& target : folder.targets) names.insert(target.substr(target.rfind('.') + 1));
  plan.train.lora_targets = {names.begin(), names.end()};
  const bool is_same = check_native(plan.model, {}, tuning_of(plan.train)).empty() && other_adapters(folder, plan).empty();
  return is_same ? plan.train.lora_targets : folder.targets;
}

// What a folder of adapters says, the settings need not say.
void take_adapter_folder(Resolving& r, const AdapterFolder& folder) {
  TrainPlan& t = r.plan().train;
  const auto differs = [&](std::string_view path, bool is_other, const std::string& found) {
    if (r.spec.find(path) != nullptr && is_other)
      r.fail(code::kConflict, path, fmt::format("the adapters in '{}' have {} {}", folder.weights.plan.directory, path, found),
             "leave it out: the folder says it");
  };
  differs("train.lora_rank", t.lora_rank != folder.rank, std::to_string(folder.rank));
  differs("adapter.alpha", t.lora_alpha != folder.alpha, fmt::format("{}", folder.alpha));
  differs("adapter.rslora", t.rslora != folder.rslora, folder.rslora ? "true" : "false");
  if (r.spec.find("train.lora_targets") != nullptr)
    r.fail(code::kConflict, "train.lora_targets", "targets beside adapter.from, whose folder says which modules have adapters",
           "leave the targets out");
  t.lora_rank = folder.rank;
  t.lora_alpha = folder.alpha;
  t.rslora = folder.rslora;
  t.lora_targets = last_names(folder, r.plan());
  r.plan().adapter = folder.weights.plan;
}

void resolve_native_adapters(Resolving& r) {
  constexpr int64_t kRank = 16;
  TrainPlan& t = r.plan().train;
  t.lora_rank = r.spec.integer("train.lora_rank").value_or(kRank);
  t.lora_alpha = r.spec.number("adapter.alpha").value_or(2 * static_cast<double>(t.lora_rank));
  t.rslora = r.spec.boolean("adapter.rslora").value_or(false);
  if (const double dropout = r.spec.number("adapter.dropout").value_or(0); dropout > 0)
    r.fail(
        code::kUnsupportedFeature, "adapter.dropout",
        fmt::format("adapter.dropout is {}, expected 0: the bundled trainer drops nothing of what adapters read, so that every mesh "
                    "trains alike",
                    dropout),
        "--lora-dropout 0, or a trainer that has it: --trainer ddp, fsdp2 or deepspeed");
  t.lora_targets = r.spec.list("train.lora_targets").value_or(std::vector<std::string>{std::string(kAllLinear)});
  for (std::string& target : t.lora_targets) target = in_words_of_modules(std::move(target));
  if (r.inputs.adapter.has_value()) return take_adapter_folder(r, *r.inputs.adapter);
  if (!r.spec.find("train.lora_rank") || !r.spec.find("adapter.alpha") || !r.spec.find("train.lora_targets"))
    r.assume(fmt::format("adapters of rank {} and alpha {} on {}", t.lora_rank, t.lora_alpha, fmt::join(t.lora_targets, ", ")));
}

}  // namespace

void resolve_native_tuning(Resolving& r) {
  TrainPlan& t = r.plan().train;
  const auto kind = r.spec.text("train.finetune");
  const bool has_folder = r.inputs.adapter.has_value();
  t.finetune = kind.value_or(has_folder ? "lora" : "full");
  t.trainable = r.spec.list("train.trainable").value_or(std::vector<std::string>{});
  if (t.finetune == "full") {
    for (const std::string_view path :
         {"train.lora_rank", "train.lora_targets", "adapter.alpha", "adapter.rslora", "adapter.dropout", "adapter.from"})
      if (r.spec.find(path) != nullptr)
        r.fail(code::kConflict, path, fmt::format("{} without adapters: finetune is full", path), "--adapter lora");
  } else {
    if (!t.trainable.empty())
      r.fail(code::kConflict, "train.trainable", "train.trainable beside adapters: either some parameters are trained, or adapters",
             "leave one of them out");
    resolve_native_adapters(r);
  }
  for (const std::string& pattern : t.trainable)
    if (const std::string problem = pattern_problem(pattern); !problem.empty())
      r.fail(code::kUnknownValue, "train.trainable", fmt::format("pattern '{}' {}", pattern, problem));
  const Tuning tuning = tuning_of(t);
  if (has_error(r.said) || tuning.trains_all()) return;
  const std::string_view path = tuning.has_adapters() ? has_folder ? "adapter.from" : "train.lora_targets" : "train.trainable";
  for (const Diagnostic& d : check_native(r.plan().model, {}, tuning))
    r.fail(code::kUnknownValue, path, d.message,
           fmt::format("{} as the model's weights are called: model.layers.0.self_attn.q_proj.weight",
                       tuning.has_adapters() ? "name modules" : "name parameters"));
  if (has_error(r.said) || !has_folder) return;
  if (const std::string other = other_adapters(*r.inputs.adapter, r.plan()); !other.empty())
    r.fail(code::kWeights, path,
           fmt::format("the adapters in '{}' are not for '{}': {}", r.plan().adapter.directory, r.plan().model.name, other));
}

void set_adapters(Setup& s, std::string_view kind) {
  constexpr int64_t kRank = 16;
  s.finetune = kind == "lora" ? Finetune::kLora : Finetune::kQlora;
  const bool keeps = s.traits().frozen_keep_dtype || s.compute == Dtype::kF32;
  s.frozen_dtype = s.finetune != Finetune::kLora ? Dtype::kNf4Double : keeps ? s.parameter_dtype : Dtype::kBf16;
  // What an adapter computes in: FSDP gathers it in the compute type and DeepSpeed holds it so; the Trainer's DDP runs under autocast,
  // for which PEFT makes an fp32 copy of each adapter's input (peft/tuners/lora/layer.py, _cast_input_dtype).
  if (s.compute != Dtype::kF32) {
    s.autocast = s.traits().autocast;
    s.lora.dtype = s.autocast && !s.software.adapters_in_compute_type ? Dtype::kF32 : Dtype::kBf16;
    // PEFT makes them fp32 beside 16-bit weights (autocast_adapter_dtype), and what comes of them.
    if (s.lora.dtype == Dtype::kF32) s.gradient_dtype = s.state_dtype = Dtype::kF32;
  }
  s.lora.rank = kRank;
  s.lora.query = s.lora.key = s.lora.value = s.lora.output = s.lora.gate = s.lora.up = s.lora.down = true;
}

bool adapts_experts_unplanned(const TrainerFacts& trainer, const Plan& plan) {
  return plan.model.num_experts > 0 && plan.train.finetune != "full" && trainer.unplanned.contains("expert_adapters");
}

Diagnostics resolve_adapters(const Spec& spec, Problem& problem) {
  Diagnostics said;
  const auto fail = [&](const char* code, std::string message, std::string help) {
    said.push_back(error(code, spec.at("train.lora_targets"), std::move(message), std::move(help)));
  };
  Setup& s = problem.setup;
  TrainPlan& plan = problem.base.train;
  if (adapts_experts_unplanned(problem.trainer, problem.base)) {
    fail(code::kUnsupportedFeature,
         fmt::format("'{}' has experts, whose 4-bit weights and adapters under {} ({} on) are not planned yet",
                     problem.base.model.name, problem.trainer.label, problem.trainer.unplanned.at("expert_adapters")),
         "without --code-base, --lora-targets query,key,value,output: as Transformers does it, experts in 16 bits and without "
         "adapters");
    return said;
  }
  set_adapters(s, plan.finetune);
  s.lora.rank = plan.lora_rank = spec.integer("train.lora_rank").value_or(s.lora.rank);
  if (s.finetune == Finetune::kLora && s.frozen_dtype == Dtype::kF32 && s.compute != Dtype::kF32)
    problem.base.assumptions.push_back(
        fmt::format("frozen weights in fp32, as {} keeps them; in 16 bits by --master-dtype bf16", problem.trainer.label));
  if (!spec.find("train.lora_rank")) problem.base.assumptions.push_back(fmt::format("adapters of rank {}", s.lora.rank));
  std::optional<std::vector<std::string>> given = spec.list("train.lora_targets");
  if (given.has_value()) given = in_words_of_matrices(*given, problem.base.model);
  s.lora.dropout = plan.lora_dropout = spec.number("adapter.dropout").value_or(0);
  if (s.lora.dropout > 0 && spec.text("trainer.code_base") == "torchtitan")
    said.push_back(error(code::kUnsupportedFeature, spec.at("adapter.dropout"),
                         fmt::format("adapter.dropout is {}, expected 0: torchtitan's adapters have none", plan.lora_dropout),
                         "--lora-dropout 0, or leave --code-base out"));
  plan.lora_alpha = spec.number("adapter.alpha").value_or(2 * static_cast<double>(plan.lora_rank));
  if (plan.lora_alpha != std::floor(plan.lora_alpha))
    said.push_back(
        error(code::kOutOfRange, spec.at("adapter.alpha"),
              fmt::format("adapter.alpha is {}, and tools other than the bundled trainer take whole numbers", plan.lora_alpha),
              fmt::format("--lora-alpha {}", std::ceil(plan.lora_alpha))));
  for (const std::string_view path : {"adapter.rslora", "adapter.from"})
    if (spec.find(path) != nullptr)
      said.push_back(
          error(code::kUnsupportedFeature, spec.at(path),
                fmt::format("{} is a setting of the bundled trainer; other trainers have switches of their own for it", path),
                "plan with --trainer native, or set it where that trainer reads it"));
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
  constexpr int64_t kStacksSince =
      20260126;  // Transformers 5; before, experts are modules, and all-linear names each of their matrices
  const int64_t day = problem.trainer.transformers == nullptr ? 0 : problem.trainer.release_day;
  const bool are_modules = day > 0 && day < kStacksSince;
  const bool mlp = given.has_value() && std::any_of(given->begin(), given->end(), is_of_mlp);
  if (mlp && !other_mlps)
    fail(code::kUnsupportedFeature,
         are_modules
             ? fmt::format("every MLP of '{}' is experts, and adapters on experts are not planned for {}", g.name,
                           problem.trainer.label)
             : fmt::format("every MLP of '{}' is a stack of experts, one parameter and no linear layer: {} puts no adapters on it",
                           g.name, problem.trainer.label),
         "--lora-targets query,key,value,output, or --trainer megatron");
  else if (mlp || !given.has_value())
    problem.base.assumptions.push_back(fmt::format(
        "adapters on attention{}, none on {}", other_mlps ? " and on MLPs that are linear layers" : " alone",
        are_modules ? "experts (all-linear, which puts some on each before Transformers 5, is not planned)" : "stacks of experts"));
  return said;
}

}  // namespace distsetup
