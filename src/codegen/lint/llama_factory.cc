// LLaMA-Factory's file.
#include "codegen/lint/llama_factory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/names.h"

namespace distsetup::lint {
namespace {

bool is_variable(std::string_view text) { return text.find_first_of("${") != std::string_view::npos; }

// What its parser and its tuner refuse: hparams/parser.py (_verify_model_args), hparams/data_args.py (__post_init__), train/tuner.py.
void lf_refused(const Document& d, Findings& report) {
  const Value& root = d.root;
  const std::string how = lower(text(root, "finetuning_type"));
  // model/model_utils/checkpointing.py, prepare_model_for_training
  if (text(root, "gradient_checkpointing") == "false" && !has(root, "disable_gradient_checkpointing"))
    report.add(
        "LF010", d, key_span(d, node(root, "gradient_checkpointing")),
        "'gradient_checkpointing: false' has no effect: LLaMA-Factory recomputes unless disable_gradient_checkpointing is true");
  if (has(root, "quantization_bit") && (how == "full" || how == "freeze"))
    report.add("LF006", d, key_span(d, node(root, "quantization_bit")),
               fmt::format("'quantization_bit' with finetuning_type {}", how));
  if (has(root, "eval_dataset") && real(root, "val_size").value_or(0) > 1e-6)
    report.add("LF007", d, key_span(d, node(root, "val_size")), "'val_size' and 'eval_dataset' are both given, expected one of them");
  static const std::vector<std::string> kStages = {"pt", "sft", "rm", "ppo", "dpo", "kto"};
  const TreeNode stage = node(root, "stage");
  const std::string said = stage ? lower(stage.text()) : "";
  if (!said.empty() && !is_variable(said) && std::find(kStages.begin(), kStages.end(), stage.text()) == kStages.end()) {
    const bool is_upper = std::find(kStages.begin(), kStages.end(), said) != kStages.end();
    const std::string near = is_upper ? said : said == "orpo" ? "" : nearest_name(said, kStages);  // a stage until release 0.8
    report.add("LF008", d, value_span(d, *stage.value), fmt::format("LLaMA-Factory has no stage '{}'", stage.text()),
               {.help = near.empty() ? "" : fmt::format("did you mean '{}'", near),
                .error_if = near.empty() ? "the release that is used lacks it, too" : ""});
  }
  const TreeNode targets = node(root, "lora_target");
  const std::string names = targets ? targets.text() : "";
  if ((!how.empty() && how != "lora") || is_variable(names)) return;
  for (size_t at = 0; at < names.size();) {
    const size_t comma = std::min(names.find(',', at), names.size());
    const std::string_view one = trim(std::string_view(names).substr(at, comma - at));
    at = comma + 1;
    if (one.find_first_of(" \t") == std::string_view::npos) continue;
    report.add("LF009", d, value_span(d, *targets.value),
               fmt::format("'{}' is taken for one name: LLaMA-Factory splits at commas", one));
    return;
  }
}

void lf_task(const LintSetup& setup, const Document& d, Findings& report) {
  const Value& root = d.root;
  const auto is_in_line = [](const DocumentPointer& other) { return other->text.find("do_train") != std::string::npos; };
  const bool says_task = has(root, "do_train") || has(root, "do_eval") || has(root, "do_predict") || has(root, "export_dir") ||
                         has(root, "infer_backend") || has(root, "task") || has(root, "export_size");
  if (!says_task && has(root, "stage") && has(root, "output_dir") && has(root, "dataset") &&
      std::none_of(setup.documents.begin(), setup.documents.end(), is_in_line))
    report.add("LF003", d, key_span(d, node(root, "stage")),
               "'do_train' is not given: LLaMA-Factory loads model and data, and trains nothing");
  const TreeNode how = node(root, "quantization_method");
  const std::string method = how ? lower(how.text()) : "bnb";
  if (has(root, "quantization_bit") && method != "bnb" && method != "hqq" && method != "eetq" && method.find('$') == std::string::npos)
    report.add("LF004", d, value_span(d, *how.value),
               fmt::format("no branch of LLaMA-Factory takes '{}': the model is silently loaded without quantization", how.text()));
  if (const std::string model = text(root, "model_name_or_path"); model.starts_with("${") && model.ends_with("}"))
    report.add("LF005", d, value_span(d, *node(root, "model_name_or_path").value),
               fmt::format("'{}' stays as it is written: LLaMA-Factory fills in no variables", model));
  const std::string path = text(root, "deepspeed");
  bool is_stage_3 = path.find("z3") != std::string::npos || path.find("zero3") != std::string::npos;
  for (const auto& other : setup.documents) {
    if (other->is(file_kind::kDeepspeed)) is_stage_3 = real(other->root, "zero_optimization.stage").value_or(0) == 3;
  }
  if (path.empty() || !is_stage_3) return;
  for (const char* name : {"pure_bf16", "use_unsloth", "pissa_init", "predict_with_generate"}) {
    if (is_true(root, name)) report.add("LF001", d, key_span(d, node(root, name)), fmt::format("'{}' cannot run under ZeRO-3", name));
  }
}

}  // namespace

void check_llama_factory(const LintSetup& setup, const Document& d, Findings& report) {
  if (!d.is(file_kind::kLlamaFactory)) return;
  lf_task(setup, d, report);
  lf_refused(d, report);
}

}  // namespace distsetup::lint
