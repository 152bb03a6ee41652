// Fields of Hugging Face TrainingArguments, and where they meet a DeepSpeed JSON.
#include "codegen/lint/training_arguments.h"

#include <fmt/format.h>

#include <array>

#include "base/names.h"

namespace distsetup::lint {
namespace {

struct Pair {
  std::string_view json, argument;
};
// transformers, integrations/deepspeed.py: fill_match.
constexpr std::array<Pair, 7> kMatched = {{{"train_micro_batch_size_per_gpu", "per_device_train_batch_size"},
                                           {"gradient_accumulation_steps", "gradient_accumulation_steps"},
                                           {"gradient_clipping", "max_grad_norm"},
                                           {"optimizer.params.lr", "learning_rate"},
                                           {"optimizer.params.weight_decay", "weight_decay"},
                                           {"bf16.enabled", "bf16"},
                                           {"fp16.enabled", "fp16"}}};

bool differ(const Value& a, const Value& b) {
  const auto x = real_of(a), y = real_of(b);
  if (x && y) return *x != *y;
  return a.text != b.text;
}

void hf_matches(const LintSetup& setup, const Document& d, Findings& report) {
  for (const auto& other : setup.documents) {
    if (!other->is(file_kind::kDeepspeed)) continue;
    for (const Pair& pair : kMatched) {
      const TreeNode json = node(other->root, pair.json), argument = node(d.root, pair.argument);
      if (!json || !argument || json.value->kind != Value::Kind::kScalar || json.text() == "auto" ||
          argument.value->kind != Value::Kind::kScalar)
        continue;
      if (!differ(*json.value, *argument.value)) continue;
      report.add(
          "HF003", d, value_span(d, *argument.value),
          fmt::format("'{}' is {} here and '{}' is {} in '{}'", pair.argument, argument.text(), pair.json, json.text(), other->path));
    }
  }
}

// A switch that stands alone or says so; of a variable nobody knows here what it says.
bool is_on(const LaunchOption* option) {
  if (option == nullptr) return false;
  const std::string word = lower(option->value);
  return !option->has_value || word.empty() || word == "true" || word == "1" || word == "yes";
}

void hf_scripts(const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* script = line.find(LaunchProgram::kScript);
      if (script == nullptr) continue;
      const LaunchOption* fp16 = script->find("fp16");
      const LaunchOption* bf16 = script->find("bf16");
      if (!is_on(fp16) || !is_on(bf16) || script->has("tensor_model_parallel_size") || script->has("micro_batch_size")) continue;
      const bool is_trainers = script->has("per_device_train_batch_size") || script->has("output_dir");
      report.add("HF001", d, fp16->span, "fp16 and bf16 are both on",
                 {.error_if = is_trainers ? "" : "the script takes TrainingArguments"});
    }
  }
}

}  // namespace

void check_training_arguments(const LintSetup& setup, const Document& d, Findings& report) {
  hf_scripts(d, report);
  if (!d.takes_training_arguments()) return;
  const Value& root = d.root;
  if (is_true(root, "fp16") && is_true(root, "bf16"))
    report.add("HF001", d, key_span(d, node(root, "fp16")), "fp16 and bf16 are both on");
  if (const TreeNode fsdp = node(root, "fsdp")) {
    const bool is_list = fsdp.value->kind == Value::Kind::kList && !fsdp.value->items.empty();
    const bool is_word =
        fsdp.value->kind == Value::Kind::kScalar && !fsdp.text().empty() && !is_true(root, "fsdp") && !is_false(root, "fsdp");
    const std::string version = setup.version("transformers");
    if ((is_list || is_word) && (version.empty() || compare_versions(version, "5.10") >= 0)) {
      report.add("HF002", d, value_span(d, *fsdp.value), "'fsdp' as a text is deprecated since Transformers 5.10 and goes in 5.20");
    }
    const auto fsdp_version = real(root, "fsdp_config.version");
    const bool may_be_2 = !fsdp_version && !has(root, "fsdp_config.fsdp_version") &&
                          (version.empty() || compare_versions(version, "5.10") >= 0);  // its default since then
    if (is_word && fsdp.text().find("hybrid_shard") != std::string::npos && (fsdp_version == 2 || may_be_2)) {
      report.add(
          "FSDP008", d, value_span(d, *fsdp.value), "'hybrid_shard' is refused with FSDP version 2, which takes it from the mesh",
          {.bites = "parse", .error_if = may_be_2 && version.empty() ? "Transformers is 5.10 or later, which takes version 2" : ""});
    }
  }
  hf_matches(setup, d, report);
  const bool checkpoints = is_true(root, "gradient_checkpointing");
  const std::string reentrant = "gradient_checkpointing_kwargs.use_reentrant";
  // LLaMA-Factory hands its own value over, use_reentrant_gc (model/model_utils/checkpointing.py).
  if (checkpoints && !has(root, reentrant) && !d.is(file_kind::kLlamaFactory)) {
    report.add("HF004", d, key_span(d, node(root, "gradient_checkpointing")),
               "gradient_checkpointing without use_reentrant: its default differs by release");
  }
  if (checkpoints && is_true(root, "ddp_find_unused_parameters") && !is_false(root, reentrant)) {
    report.add("HF005", d, key_span(d, node(root, "ddp_find_unused_parameters")),
               "the search for unused parameters and reentrant checkpointing mark parameters ready twice",
               // The default differs by release, and DeepSpeed, FSDP and a single GPU do not search.
               {.error_if = is_true(root, reentrant) ? "the run is plain DDP"
                                                     : "the run is plain DDP and the release's default is reentrant"});
  }
}

}  // namespace distsetup::lint
