// Trainers on top of others: Lightning, Axolotl, OpenRLHF, NeMo Automodel, torchtitan.
#include "codegen/lint/trainers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/names.h"

namespace distsetup::lint {
namespace {

bool names_class(const Value& root, std::string_view path, std::string_view name) {
  const std::string word = text(root, path);
  return word.size() >= name.size() && word.substr(word.size() - name.size()) == name;
}

// `trainer:` of LightningCLI, or below `fit:`.
const Value* lightning_trainer(const Document& d) {
  for (const char* path : {"trainer", "fit.trainer"}) {
    if (const TreeNode at = node(d.root, path); at && at.value->kind == Value::Kind::kMap) return at.value;
  }
  return nullptr;
}

// Lightning takes its ranks from torchrun where that starts it, in a task of SLURM too (trainer/connectors/accelerator_connector.py).
bool is_started_by_torchrun(const LintSetup& setup) {
  return std::any_of(setup.documents.begin(), setup.documents.end(), [](const DocumentPointer& d) {
    return std::any_of(d->parts.begin(), d->parts.end(), [](const ScriptPart& part) {
      return std::any_of(part.lines.begin(), part.lines.end(),
                         [](const LaunchLine& line) { return line.find(LaunchProgram::kTorchrun) != nullptr; });
    });
  });
}

void lightning_job(const LintSetup& setup, const Document& d, const Value& trainer, Findings& report) {
  const Document* job = setup.first(file_kind::kSbatch);
  if (job == nullptr || job->parts.empty() || is_started_by_torchrun(setup)) return;
  const ShellScript& script = job->parts[0].script;
  struct Same {
    std::string_view key, directive;
  };
  for (const Same& one : {Same{"devices", "ntasks-per-node"}, Same{"num_nodes", "nodes"}}) {
    const auto here = real(trainer, one.key);
    const Directive* directive = script.directive(one.directive);
    if (!here || directive == nullptr || number(directive->value) == static_cast<long long>(*here)) continue;
    report.add("LN001", d, value_span(d, *node(trainer, one.key).value),
               fmt::format("'{}' is {:.0f}, the job has {} {}", one.key, *here, one.directive, directive->value));
  }
}

void lightning(const LintSetup& setup, const Document& d, Findings& report) {
  const Value* trainer = lightning_trainer(d);
  if (trainer == nullptr) return;
  lightning_job(setup, d, *trainer, report);
  const bool is_fsdp =
      names_class(*trainer, "strategy.class_path", "FSDPStrategy") || text(*trainer, "strategy").rfind("fsdp", 0) == 0;
  const std::string algorithm = text(*trainer, "gradient_clip_algorithm");
  if (is_fsdp && real(*trainer, "gradient_clip_val").value_or(0) > 0 && (algorithm.empty() || algorithm == "norm")) {
    report.add("LN003", d, key_span(d, node(*trainer, "gradient_clip_val")),
               "Lightning cannot clip FSDP gradients by norm from the Trainer");
  }
  const TreeNode arguments = node(*trainer, "strategy.init_args");
  if (!arguments || arguments.value->kind != Value::Kind::kMap) return;
  if (is_fsdp && text(*arguments.value, "sharding_strategy").rfind("HYBRID", 0) == 0 && !has(*arguments.value, "device_mesh") &&
      !has(*arguments.value, "process_group") && !has(*arguments.value, "auto_wrap_policy")) {
    report.add("FSDP007", d, value_span(d, *node(*arguments.value, "sharding_strategy").value),
               "hybrid sharding in Lightning needs a device_mesh, process_group or auto_wrap_policy");
  }
  if (!names_class(*trainer, "strategy.class_path", "DeepSpeedStrategy") || !has(*arguments.value, "config")) return;
  for (size_t i = 0; i < arguments.value->entries.size(); ++i) {
    const std::string& name = arguments.value->entries[i].first;
    if (name == "config") continue;
    report.add("LN004", d, key_span(d, {&arguments.value->entries[i].second, arguments.value, i}),
               fmt::format("'{}' is silently ignored: DeepSpeedStrategy takes everything from 'config'", name));
  }
  if (has(*arguments.value, "config.gradient_accumulation_steps")) {
    report.add("LN002", d, key_span(d, node(*arguments.value, "config.gradient_accumulation_steps")),
               "Lightning refuses accumulation in the DeepSpeed dictionary");
  }
}

// Adapters and precision that are asked for and not there (axolotl, utils/schemas/peft.py; core/builders/base.py).
void axolotl_switches(const Document& d, Findings& report) {
  const Value& root = d.root;
  const std::string adapter = text(root, "adapter");
  const bool is_open = adapter.find('$') != std::string::npos || text(root, "load_in_4bit").find('$') != std::string::npos;
  if (is_open || is_true(root, "merge_lora")) return;
  if (adapter == "qlora" && !is_true(root, "load_in_4bit")) {
    const TreeNode at = node(root, "load_in_4bit");
    report.add("AX005", d, at ? key_span(d, at) : key_span(d, node(root, "adapter")), "'adapter: qlora' without 'load_in_4bit: true'");
  }
  if (!adapter.empty() || has(root, "inference")) return;
  for (const char* name : {"load_in_4bit", "load_in_8bit"}) {
    if (is_true(root, name)) report.add("AX005", d, key_span(d, node(root, name)), fmt::format("'{}' without an 'adapter'", name));
  }
  if (real(root, "lora_r") && !has(root, "plugins") && !has(root, "lora_model_dir"))
    report.add("AX006", d, key_span(d, node(root, "lora_r")),
               "'lora_r' is silently ignored: without 'adapter' all parameters are trained");
}

// What Axolotl's schema wants (HyperparametersConfig in utils/schemas/training.py), and samples in one row that see each other
// (utils/schemas/validation.py, check_sample_packing_without_attention; attn_implementation is of later releases).
void axolotl_values(const LintSetup& setup, const Document& d, Findings& report) {
  const Value& root = d.root;
  const bool is_in_line = std::any_of(setup.documents.begin(), setup.documents.end(), [](const DocumentPointer& other) {
    return other->text.find("--learning") != std::string::npos;
  });
  const TreeNode data = has(root, "datasets") ? node(root, "datasets") : node(root, "pretraining_dataset");
  const bool trains = has(root, "base_model") && data && (has(root, "micro_batch_size") || has(root, "gradient_accumulation_steps"));
  if (trains && !has(root, "learning_rate") && !is_in_line) {
    const bool is_misnamed = has(root, "lr");
    report.add("AX008", d, key_span(d, is_misnamed ? node(root, "lr") : data),
               "'learning_rate' is not given, and Axolotl assumes none",
               {.error_if = is_misnamed ? "" : "the command line does not give --learning-rate"});
  }
  const bool has_other = is_true(root, "sdp_attention") || is_true(root, "flex_attention") || is_true(root, "xformers_attention") ||
                         is_true(root, "s2_attention") || has(root, "attn_implementation");
  if (is_true(root, "sample_packing") && is_false(root, "flash_attention") && !has_other)
    report.add("AX009", d, value_span(d, *node(root, "flash_attention").value),
               "'sample_packing' without an attention that keeps the samples of a row apart: they see each other");
}

void axolotl(const LintSetup& setup, const Document& d, Findings& report) {
  const Value& root = d.root;
  axolotl_switches(d, report);
  axolotl_values(setup, d, report);
  if (is_true(root, "bf16") && is_true(root, "fp16"))
    report.add("AX007", d, key_span(d, node(root, "fp16")), "'fp16' is silently ignored beside 'bf16'");
  const bool has_fsdp = has(root, "fsdp") || has(root, "fsdp_config");
  const auto is_open = [&root](std::string_view name) {
    return text(root, name).find_first_of("${") != std::string::npos;
  };  // ${FSDP}
  if (has(root, "deepspeed") && has_fsdp && !is_open("deepspeed") && !is_open("fsdp") && !is_open("fsdp_config"))
    report.add("AX001", d, key_span(d, node(root, "deepspeed")), "'deepspeed' and 'fsdp' are both given, expected one of them");
  const std::string optimizer = text(root, "optimizer");
  const bool is_8bit = optimizer.find("8bit") != std::string::npos;
  const bool is_bnb = optimizer == "adamw_8bit" || optimizer == "adamw_bnb_8bit";  // torchao's (adamw_torch_8bit) shards
  const int version = static_cast<int>(real(root, "fsdp_version").value_or(1));
  const bool offloads = is_true(root, "fsdp_config.offload_params") || is_true(root, "fsdp_config.fsdp_offload_params");
  const bool is_split = real(root, "tensor_parallel_size").value_or(1) > 1;
  const std::string mode = is_split && (is_bnb || optimizer == "paged_adamw_8bit") ? "tensor parallelism"
                           : has(root, "fsdp_config") && version == 2 && is_bnb    ? "FSDP version 2"
                           : offloads && version != 2 && is_8bit                   ? "FSDP offload"
                                                                                   : "";
  if (!mode.empty())
    report.add("AX002", d, value_span(d, *node(root, "optimizer").value), fmt::format("'{}' is refused with {}", optimizer, mode));
  if (has_fsdp && !has(root, "fsdp_version")) {
    const TreeNode at = has(root, "fsdp_config") ? node(root, "fsdp_config") : node(root, "fsdp");
    report.add("AX003", d, key_span(d, at), "'fsdp_version' is not given: Axolotl pins the file to version 1");
  }
  const TreeNode section = node(root, "fsdp_config");
  if (!section || (has_fsdp && !has(root, "fsdp_version"))) return;  // one of them says that the form is old
  TextSpan first{0, 0};
  std::string first_name;
  std::vector<LintEdit> edits;
  for (size_t i = 0; i < section.value->entries.size(); ++i) {
    const std::string& name = section.value->entries[i].first;
    if (name.rfind("fsdp_", 0) != 0) continue;
    const TextSpan at = key_span(d, {&section.value->entries[i].second, section.value, i});
    if (edits.empty()) {
      first = at;
      first_name = name;
    }
    edits.push_back({at.begin, at.end, name.substr(5)});
  }
  if (edits.empty()) return;
  const std::string more = edits.size() == 1 ? "carries" : fmt::format("and {} more carry", edits.size() - 1);
  report.add("AX003", d, first, fmt::format("'{}' {} the prefix that Axolotl strips with a warning", first_name, more),
             {fmt::format("write {}", first_name.substr(5)), "", edits, {}});
}

void openrlhf(const LintSetup& setup, const Document& d, const LaunchStage& run, Findings& report) {
  const std::string version = setup.version("openrlhf");
  const LaunchOption* flat = nullptr;
  const LaunchOption* dotted = nullptr;
  for (const LaunchOption& option : run.options) {
    const bool is_flat = option.name == "pretrain" || option.name == "zero_stage" || option.name == "micro_train_batch_size" ||
                         option.name == "train_batch_size" || option.name == "max_len";
    if (is_flat && flat == nullptr) flat = &option;
    if (option.name.find('.') != std::string::npos && dotted == nullptr) dotted = &option;
  }
  const bool is_new = !version.empty() && compare_versions(version, "0.10.2") >= 0;
  const bool is_old = !version.empty() && compare_versions(version, "0.10.2") < 0;
  if (flat != nullptr && (is_new || (version.empty() && dotted != nullptr))) {
    report.add("ORL001", d, flat->span,
               fmt::format("'{}' is the flag style of OpenRLHF before 0.10.2{}", flat->spelled,
                           version.empty() ? ", beside dotted flags" : ""));
  }
  if (dotted != nullptr && is_old)
    report.add("ORL001", d, dotted->span,
               fmt::format("'{}' is the flag style of OpenRLHF since 0.10.2, and {} is used", dotted->spelled, version));
  for (const char* name : {"ds.ring_attn_size", "ring_attn_size"}) {
    const LaunchOption* ring = run.find(name);
    if (ring == nullptr || number(ring->value).value_or(1) <= 1 || run.has("ds.packing_samples") || run.has("packing_samples"))
      continue;
    report.add("ORL002", d, ring->span, fmt::format("'{}' needs packing", ring->spelled), {"add --ds.packing_samples", "", {}, {}});
  }
  const LaunchOption* tp = run.find("ds.tensor_parallel_size");
  const std::string type = run.value("ds.param_dtype");
  if (tp != nullptr && number(tp->value).value_or(1) > 1 && !type.empty() && type != "bf16") {
    report.add("ORL002", d, tp->span, fmt::format("'{}' needs bf16", tp->spelled), {"add --ds.param_dtype bf16", "", {}, {}});
  }
  // Whoever writes them may have the branch that takes them, unless a release is named.
  const FindingDetails of_branch{"", "", {}, version.empty() ? std::optional<Severity>(Severity::kWarning) : std::nullopt};
  for (const char* name : {"fsdp_tensor_parallel_size", "use_hf_tp_plan", "sequence_parallel"}) {
    if (const LaunchOption* option = run.find(name))
      report.add("ORL003", d, option->span, fmt::format("'{}' is in no release of OpenRLHF", option->spelled), of_branch);
  }
  if (run.value("backend") == "fsdp2")
    report.add("ORL003", d, run.find("backend")->span, "'--backend fsdp2' is in no release of OpenRLHF", of_branch);
}

void automodel(const Document& d, Findings& report) {
  const TreeNode section = node(d.root, "distributed");
  if (!section || section.value->kind != Value::Kind::kMap) return;
  const Value& v = *section.value;
  const auto size = [&v](std::string_view name) { return real(v, name).value_or(1); };
  const auto say = [&](std::string_view name, const std::string& reason) {
    report.add("AM001", d, key_span(d, node(v, name)), "illegal distributed section: " + reason);
  };
  if (size("pp_size") > 1 && !has(v, "pipeline")) say("pp_size", fmt::format("pp_size {} needs a pipeline block", size("pp_size")));
  const auto dp = real(v, "dp_size"), replicate = real(v, "dp_replicate_size");
  if (dp && replicate && *replicate >= *dp)
    say("dp_replicate_size", fmt::format("dp_replicate_size {} must be below dp_size {}", *replicate, *dp));
  if (text(v, "strategy") == "ddp") {
    for (const char* name : {"tp_size", "pp_size", "cp_size", "ep_size"}) {
      if (size(name) > 1) say(name, fmt::format("strategy ddp with {} {}", name, size(name)));
    }
  }
}

// TOML (0.2.2 and older): features together. Unknown keys and types are keys.cc, sizes are plan_level.cc.
void torchtitan(const LintSetup& setup, const Document& d, Findings& report) {
  const Value& root = d.root;
  const auto key = [&](std::string_view path) { return key_span(d, node(root, path)); };
  const auto val = [&](std::string_view path) { return value_span(d, *node(root, path).value); };
  for (const char* name : {"dtype", "mixed_precision_param", "mixed_precision_reduce"}) {
    const std::string path = fmt::format("training.{}", name);
    const std::string type = text(root, path);
    const bool is_reduce = std::string_view(name) == "mixed_precision_reduce";
    if (type.empty() || type == "float32" || (type == "bfloat16" && !is_reduce)) continue;
    // What its table of dtypes knows it takes, with a warning: the field's choices are not enforced for values of a file.
    const bool has_dtype = type == "bfloat16" || type == "float16";
    const std::string words = is_reduce ? "float32" : "bfloat16 or float32";
    const std::string meant = is_reduce ? "float32" : same_name(type, "bf16") ? "bfloat16" : same_name(type, "fp32") ? "float32" : "";
    report.add("TT001", d, val(path), fmt::format("'{}' is '{}', expected {}", path, type, words),
               {fmt::format("write {}", meant.empty() ? words : meant),
                "",
                {},
                has_dtype ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
  }
  const std::string version = setup.version("torchtitan");
  if (!version.empty() && compare_versions(version, "0.2.2") > 0) {
    const TextSpan top = root.key_locations.empty() ? TextSpan{0, 1} : key_span(d, {&root.entries[0].second, &root, 0});
    report.add("TT002", d, top, fmt::format("torchtitan {} reads no TOML: its configuration is a Python function", version));
  }
  const bool compiles = is_true(root, "compile.enable") || is_true(root, "training.compile");  // of 0.1
  if (is_true(root, "parallelism.enable_async_tensor_parallel") && !compiles) {
    report.add("TT004", d, key("parallelism.enable_async_tensor_parallel"), "asynchronous tensor parallelism needs compile.enable");
  }
  if (text(root, "activation_checkpoint.mode") == "memory_budget" && !compiles) {
    report.add("TT004", d, val("activation_checkpoint.mode"), "activation checkpointing by memory budget needs compile.enable");
  }
  const auto etp = real(root, "parallelism.expert_tensor_parallel_degree");
  const double tp = real(root, "parallelism.tensor_parallel_degree").value_or(1);
  if (etp && *etp != 1 && *etp != tp) {
    report.add("TT005", d, val("parallelism.expert_tensor_parallel_degree"),
               fmt::format("expert tensor parallel is {}, expected 1 or the tensor parallel degree {}", *etp, tp));
  }
  if (is_true(root, "optimizer.early_step_in_backward") && real(root, "training.max_norm").value_or(0) > 0) {
    report.add("TT008", d, val("training.max_norm"),
               "'training.max_norm' clips nothing: 'optimizer.early_step_in_backward' has made the step");
  }
  const std::string reshard = text(root, "parallelism.fsdp_reshard_after_forward");
  if (reshard == "zero1" || reshard == "optimizer" || has(root, "parallelism.zero_stage")) {
    report.add("TT006", d,
               has(root, "parallelism.zero_stage") ? key("parallelism.zero_stage") : val("parallelism.fsdp_reshard_after_forward"),
               "torchtitan has no form for ZeRO-1 (only the optimizer sharded)");
  }
}

}  // namespace

void check_trainers(const LintSetup& setup, const Document& d, Findings& report) {
  if (d.is(file_kind::kLightning)) lightning(setup, d, report);
  if (d.is(file_kind::kAxolotl)) axolotl(setup, d, report);
  if (d.is(file_kind::kAutomodel)) automodel(d, report);
  if (d.is(file_kind::kTorchtitan)) torchtitan(setup, d, report);
  if (d.is(file_kind::kDeepspeed) && setup.consumer(d) == "lightning" && has(d.root, "gradient_accumulation_steps")) {
    report.add("LN002", d, key_span(d, node(d.root, "gradient_accumulation_steps")),
               "Lightning refuses accumulation in the DeepSpeed dictionary");
  }
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* script = line.find(LaunchProgram::kScript);
      if (script != nullptr && script->name.find("openrlhf") != std::string::npos) openrlhf(setup, d, *script, report);
    }
  }
}

}  // namespace distsetup::lint
