// Fields of Hugging Face TrainingArguments. Where they meet the settings of DeepSpeed is trainer_match.cc.
#include "codegen/lint/training_arguments.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "base/names.h"
#include "codegen/lint/misspelt.h"
#include "codegen/tables/name_table.h"
#include "codegen/tables/other_releases.h"

namespace distsetup::lint {
namespace {

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

// A script of somebody's own may read the file and take what it likes from it; TRL's and LLaMA-Factory's files are TrainingArguments.
std::string doubt_of_reader(const Document& d) { return d.is(file_kind::kTrainer) ? "the script makes TrainingArguments of it" : ""; }

void hf_words(const Document& d, Findings& report) {
  const NameTable& values = name_table("trainer-values");
  for (const auto& [key, known] : values.types) {
    const TreeNode at = node(d.root, key);
    if (!at || at.value->kind != Value::Kind::kScalar || at.text().empty() || at.text().find_first_of("${") != std::string::npos)
      continue;
    const std::vector<std::string> names = spellings(known);
    if (find_name(known, at.text()) != nullptr || !gone_since("trainer-values", at.text()).empty()) continue;
    const std::string near = misspelt_name(at.text(), names);
    report.add("HF008", d, value_span(d, *at.value), fmt::format("{} has no {} '{}'", values.tool, key, at.text()),
               {near.empty() ? suggest(at.text(), names) : fmt::format("did you mean '{}'", near),
                "",
                {},
                {},
                near.empty() ? "the release that is used lacks it, too" : doubt_of_reader(d)});
  }
}

void hf_best_model(const Document& d, Findings& report) {
  const Value& root = d.root;
  if (!is_true(root, "load_best_model_at_end")) return;
  const TreeNode at = node(root, "load_best_model_at_end");
  const char* evaluation = has(root, "evaluation_strategy") ? "evaluation_strategy" : "eval_strategy";
  const std::string eval = lower(text(root, evaluation)),
                    save = has(root, "save_strategy") ? lower(text(root, "save_strategy")) : "steps";
  const bool is_open =
      eval.empty() || (eval + save).find_first_of("${") != std::string::npos || real(root, evaluation) || save == "best";
  if (is_open) return;
  if (eval != save) {
    report.add("HF009", d, key_span(d, at),
               fmt::format("'load_best_model_at_end' with {} {} and save_strategy {}", evaluation, eval, save));
    return;
  }
  const auto every = real(root, "save_steps"), looks = real(root, "eval_steps");
  if (eval != "steps" || !every || !looks || *every < 1 || *looks < 1 || std::fmod(*every, *looks) == 0) return;
  report.add("HF009", d, value_span(d, *node(root, "save_steps").value),
             fmt::format("'load_best_model_at_end' with save_steps {}, which is no multiple of eval_steps {}", *every, *looks));
}

struct FieldRange {
  std::string_view key;
  double least, below;  // from, to and without
  std::string_view said;
};
constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr std::array<FieldRange, 8> kRanges = {{{"learning_rate", 0, kAny, "0 or more"},
                                                {"weight_decay", 0, kAny, "0 or more"},
                                                {"warmup_steps", 0, kAny, "0 or more"},
                                                {"warmup_ratio", 0, kAny, "from 0 to 1"},
                                                {"adam_beta1", 0, 1, "from 0 to below 1"},
                                                {"adam_beta2", 0, 1, "from 0 to below 1"},
                                                {"per_device_train_batch_size", 1, kAny, "1 or more"},
                                                {"gradient_accumulation_steps", 1, kAny, "1 or more"}}};

void hf_ranges(const Document& d, Findings& report) {
  const Value& root = d.root;
  const auto say = [&](std::string_view key, double x, std::string_view said) {
    report.add("HF010", d, value_span(d, *node(root, key).value), fmt::format("'{}' is {}, expected {}", key, x, said),
               {.error_if = doubt_of_reader(d)});
  };
  for (const FieldRange& one : kRanges) {
    const auto x = real(root, one.key);
    if (x && (*x < one.least || *x >= one.below)) say(one.key, *x, one.said);
  }
  const auto epochs = real(root, "num_train_epochs");
  if (epochs && *epochs < 0 && real(root, "max_steps").value_or(-1) <= 0) say("num_train_epochs", *epochs, "above 0, or max_steps");
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
  hf_words(d, report);
  hf_best_model(d, report);
  hf_ranges(d, report);
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
