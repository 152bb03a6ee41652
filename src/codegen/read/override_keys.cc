#include "codegen/read/override_keys.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "codegen/read/best_table.h"
#include "codegen/shell/words.h"

namespace distsetup {
namespace {

// NeMo's names for arguments of Megatron-LM (nemo/collections/nlp, megatron_gpt_config.yaml of its release 1.23), below "model.".
std::vector<FoundKey> as_megatron(const std::vector<FoundKey>& found) {
  static const std::map<std::string, std::string, std::less<>> kNames = {
      {"model.micro_batch_size", "micro_batch_size"},
      {"model.global_batch_size", "global_batch_size"},
      {"model.tensor_model_parallel_size", "tensor_model_parallel_size"},
      {"model.pipeline_model_parallel_size", "pipeline_model_parallel_size"},
      {"model.context_parallel_size", "context_parallel_size"},
      {"model.expert_model_parallel_size", "expert_model_parallel_size"},
      {"model.encoder_seq_length", "seq_length"},
      {"model.hidden_size", "hidden_size"},
      {"model.ffn_hidden_size", "ffn_hidden_size"},
      {"model.num_layers", "num_layers"},
      {"model.num_attention_heads", "num_attention_heads"},
      {"model.activations_checkpoint_granularity", "recompute_granularity"},
      {"model.optim.lr", "lr"},
      {"model.optim.weight_decay", "weight_decay"}};
  std::vector<FoundKey> out;
  for (const FoundKey& one : found) {
    const auto name = kNames.find(one.key);
    if (name == kNames.end() || one.text == "null") continue;
    out.push_back(one);
    out.back().key = name->second;
  }
  const bool is_nemo = std::any_of(out.begin(), out.end(), [](const FoundKey& one) {
    return one.key.ends_with("parallel_size") || one.key.ends_with("batch_size");
  });
  return is_nemo ? out : std::vector<FoundKey>{};
}

bool has_key(const std::vector<FoundKey>& found, std::initializer_list<std::string_view> keys) {
  return std::any_of(found.begin(), found.end(), [keys](const FoundKey& one) {
    return std::any_of(keys.begin(), keys.end(), [&one](std::string_view key) { return one.key == key; });
  });
}

// Megatron-Bridge's recipes take their own sections (scripts/training/run_recipe.py); what the line leaves out is the recipe's.
bool is_of_bridge(const std::vector<FoundKey>& found) {
  const bool has_axes = std::any_of(found.begin(), found.end(), [](const FoundKey& one) {
    return one.key.starts_with("model.") && one.key.ends_with("_model_parallel_size");
  });
  return has_key(found, {"train.train_iters"}) || (has_axes && has_key(found, {"train.global_batch_size", "train.micro_batch_size"}));
}

Result<Reading> overrides_of_bridge(const TemplateSet& templates, const std::vector<FoundKey>& found, const std::string& file) {
  Result<Reading> reading = reading_by(templates, "megatron-bridge/keys.yaml", {nullptr, found, nullptr}, file);
  if (!reading.ok()) return reading;
  std::erase_if(reading->fields, [](const auto& one) {
    return one.second.is_assumed && one.first != "strategy.trainer" && one.first != "launch.target";
  });
  reading->is_over_file = true;
  return reading;
}

// SkyRL's Trainer is its own: "trainer.strategy" names what shards the policy (skyrl/train/config, TrainerConfig).
bool is_of_skyrl(std::string_view program) { return program.starts_with("skyrl"); }

void take_strategy_of_skyrl(const FoundKey& found, Reading& reading) {
  static const std::map<std::string, const char*, std::less<>> kTrainers = {
      {"fsdp", "fsdp1"}, {"fsdp2", "fsdp2"}, {"megatron", "megatron"}, {"deepspeed", "deepspeed"}};
  const auto trainer = kTrainers.find(found.text);
  if (trainer != kTrainers.end()) reading.fields["strategy.trainer"] = {Json(trainer->second), found.key, found.at};
}

}  // namespace

std::optional<std::pair<std::string, std::string>> override_in(std::string_view word) {
  const size_t first = std::min(word.find_first_not_of("+~"), word.size()), equals = word.find('=', first);
  if (equals == std::string_view::npos || equals == first) return std::nullopt;
  const std::string_view key = word.substr(first, equals - first);
  const bool is_name = std::all_of(key.begin(), key.end(),
                                   [](char c) { return foreign::is_name_char(c) || c == '.' || c == '/' || c == '@' || c == '-'; });
  if (!is_name) return std::nullopt;
  return std::pair(std::string(key), std::string(word.substr(equals + 1)));
}

Result<Reading> reading_of_overrides(const TemplateSet& templates, const std::string& program, const std::vector<FoundKey>& found,
                                     const std::string& file) {
  static const std::set<std::string, std::less<>> kOfTrainer = {"trainer.devices",
                                                                "trainer.num_nodes",
                                                                "trainer.precision",
                                                                "trainer.strategy",
                                                                "trainer.max_steps",
                                                                "trainer.gradient_clip_val",
                                                                "trainer.accumulate_grad_batches"};
  if (is_of_bridge(found)) return overrides_of_bridge(templates, found, file);
  const std::vector<FoundKey> of_megatron = as_megatron(found);
  const auto is_of_megatron = [&of_megatron](const FoundKey& one) {
    return std::any_of(of_megatron.begin(), of_megatron.end(), [&one](const FoundKey& other) { return other.at == one.at; });
  };
  std::vector<FoundKey> known;
  std::vector<LostKey> lost;
  Reading of_program;
  for (FoundKey one : found) {
    if (is_of_megatron(one) || (!of_megatron.empty() && one.key == "trainer.accumulate_grad_batches")) continue;
    if (one.key == "trainer.nnodes") one.key = "trainer.num_nodes";  // verl's names
    if (one.key == "trainer.n_gpus_per_node") one.key = "trainer.devices";
    if (is_of_skyrl(program) && one.key == "trainer.strategy") {
      take_strategy_of_skyrl(one, of_program);
      if (!of_program.fields.empty()) continue;
    }
    if (kOfTrainer.count(one.key) > 0 && !is_of_skyrl(program)) {
      known.push_back(one);
    } else {
      lost.push_back({one.key, one.text, "it is set over a configuration of the program's own, which is not read", one.at});
    }
  }
  Reading reading;
  if (!known.empty()) {
    Result<Reading> of_trainer = reading_by(templates, "lightning/keys.yaml", {nullptr, std::move(known), nullptr}, file);
    if (!of_trainer.ok()) return of_trainer;
    reading = as_own_script(std::move(*of_trainer), program, found);
  }
  if (!of_megatron.empty()) {
    Result<Reading> model = reading_by(templates, "megatron-lm/keys.yaml", {nullptr, of_megatron, nullptr}, file);
    if (!model.ok()) return model;
    Reading own = as_own_script(std::move(*model), program, of_megatron);
    for (auto& [field, value] : own.fields) reading.fields.emplace(field, value);
    reading.lost.insert(reading.lost.end(), own.lost.begin(), own.lost.end());
    reading.fields.emplace("strategy.trainer", ReadField{Json("megatron"), "(trainer)", of_megatron[0].at, true});
  }
  reading.fields.insert(of_program.fields.begin(), of_program.fields.end());
  reading.file = file;
  reading.tool = "overrides of " + program;
  reading.lost.insert(reading.lost.end(), lost.begin(), lost.end());
  return reading;
}

}  // namespace distsetup
