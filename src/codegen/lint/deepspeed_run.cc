// DeepSpeed's JSON beside what runs with it: schedules, accumulation, who reads the file, other kinds of parallelism.
#include "codegen/lint/deepspeed_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/names.h"

namespace distsetup::lint {
namespace {

// Read by the Trainer or accelerate, which add and replace little; a script of one's own may do anything to the dictionary.
bool is_for_trainer(const DeepspeedFile& in) { return in.is_hf() || in.d.text.find("\"auto\"") != std::string::npos; }

// The parameters go to the schedule's constructor as they are (deepspeed/runtime/lr_schedules.py), which takes these and no others.
void ds_schedule_parameters(const DeepspeedFile& in, const std::string& scheduler) {
  static const std::set<std::string> kWarmup = {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type",
                                                "last_batch_iteration"},
                                     kDecay = {"total_num_steps",  "warmup_min_lr", "warmup_max_lr",
                                               "warmup_num_steps", "warmup_type",   "last_batch_iteration"},
                                     kCosine = {"total_num_steps", "warmup_min_ratio", "warmup_num_steps",
                                                "cos_min_ratio",   "warmup_type",      "last_batch_iteration"};
  const std::set<std::string>* known = scheduler == "WarmupLR"         ? &kWarmup
                                       : scheduler == "WarmupDecayLR"  ? &kDecay
                                       : scheduler == "WarmupCosineLR" ? &kCosine
                                                                       : nullptr;
  const TreeNode parameters = node(in.root, "scheduler.params");
  if (known == nullptr || !parameters) return;
  for (const auto& [name, value] : parameters.value->entries) {
    if (known->count(name) > 0) continue;
    const bool is_of_rates = scheduler == "WarmupCosineLR" && (name == "warmup_min_lr" || name == "warmup_max_lr");
    in.report.add("DSJ050", in.d, in.key("scheduler.params." + name),
                  fmt::format("{} takes no '{}': it cannot be made", scheduler, name),
                  {is_of_rates ? "it multiplies the optimizer's lr: write the peak there, and warmup_min_ratio here"
                               : suggest(name, std::vector<std::string>(known->begin(), known->end())),
                   "",
                   {},
                   {}});
    return;  // one stops it
  }
}

void ds_schedules(const DeepspeedFile& in) {
  const Value& root = in.root;
  // Looked up by their exact name; optimizers by their lower case.
  static const std::set<std::string> kSchedulers = {
      "LRRangeTest",      "OneCycle",    "WarmupLR",     "WarmupDecayLR", "WarmupCosineLR",    "StepLR",
      "MultiStepLR",      "ConstantLR",  "LinearLR",     "ExponentialLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
      "OneCycleLR",       "CyclicLR",    "PolynomialLR", "LambdaLR",      "ReduceLROnPlateau", "MultiplicativeLR",
      "ChainedScheduler", "SequentialLR"};
  static const std::set<std::string> kOptimizers = {"adam",       "adamw",  "adagrad", "lamb",  "onebitadam", "zerooneadam",
                                                    "onebitlamb", "muadam", "muadamw", "musgd", "lion",       "muon"};
  static const std::set<std::string> kTorchOptimizers = {"sgd",      "rmsprop", "nadam", "radam",      "adamax",   "asgd",
                                                         "adadelta", "rprop",   "lbfgs", "sparseadam", "adafactor"};
  const std::string scheduler = text(root, "scheduler.type");
  if (!scheduler.empty() && kSchedulers.count(scheduler) == 0) {
    in.report.add(
        "DSJ025", in.d, in.val("scheduler.type"),
        fmt::format("scheduler '{}' passes the parser and stops the run when GPUs are taken", scheduler),
        {suggest(scheduler, std::vector<std::string>{"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"}),
         "",
         {},
         {}});
  }
  const std::string optimizer = text(root, "optimizer.type");
  if (!optimizer.empty() && kOptimizers.count(lower(optimizer)) == 0 && kTorchOptimizers.count(lower(optimizer)) == 0) {
    in.report.add("DSJ025", in.d, in.val("optimizer.type"),
                  fmt::format("optimizer '{}' passes the parser and stops the run when GPUs are taken", optimizer),
                  {suggest(optimizer, std::vector<std::string>{"Adam", "AdamW", "Adagrad", "Lamb", "Lion", "Muon", "SGD"}),
                   "",
                   {},
                   {},
                   // deepspeed.initialize(optimizer=…) wins over the file.
                   is_for_trainer(in) ? "" : "the script hands DeepSpeed no optimizer of its own"});
  }
  if (scheduler.rfind("Warmup", 0) == 0 && !has(root, "scheduler.params.warmup_type")) {
    in.report.add("DSJ024", in.d, in.val("scheduler.type"),
                  fmt::format("{} without 'warmup_type' warms up logarithmically", scheduler));
  }
  ds_schedule_parameters(in, scheduler);
  const TreeNode parameters = node(root, "scheduler.params");
  const bool counts_steps = scheduler == "WarmupDecayLR" || scheduler == "WarmupCosineLR";
  if (counts_steps && (!parameters || !has(*parameters.value, "total_num_steps"))) {
    in.report.add("DSJ049", in.d, in.val("scheduler.type"),
                  fmt::format("{} has no 'total_num_steps': it cannot be made without", scheduler));
  }
  // An optimizer DeepSpeed does not build: torch's by name, or one that the trainer brings.
  std::string foreign = kTorchOptimizers.count(lower(optimizer)) > 0 ? optimizer : "";
  for (const auto& other : in.setup.documents) {
    const std::string optim = text(other->root, "optim");
    const bool is_native = optim.empty() || optim.rfind("adamw_torch", 0) == 0 || optim == "adamw_hf";
    if (other->takes_training_arguments() && !is_native && optimizer.empty()) foreign = optim;
  }
  if (foreign.empty() || in.stage == 0) return;
  const TextSpan at = has(root, "optimizer.type") ? in.val("optimizer.type") : in.key("zero_optimization");
  if (offloads(root, "offload_optimizer") && !is_false(root, "zero_force_ds_cpu_optimizer")) {
    in.report.add(
        "DSJ029", in.d, at,
        fmt::format("'{}' with optimizer offload: the engine refuses it unless zero_force_ds_cpu_optimizer is false", foreign));
  }
  if (!is_true(root, "zero_allow_untested_optimizer")) {
    in.report.add("DSJ030", in.d, at,
                  fmt::format("'{}' is not among DeepSpeed's tested optimizers: the engine refuses it under ZeRO", foreign));
  }
}

void ds_consumers(const DeepspeedFile& in) {
  const Value& root = in.root;
  if (in.is_hf() && has(root, "activation_checkpointing")) {
    in.report.add("DSJ027", in.d, in.key("activation_checkpointing"),
                  "'activation_checkpointing' has no effect on Hugging Face models");
  }
  const bool gathers = is_true(root, "zero_optimization.stage3_gather_16bit_weights_on_model_save") ||
                       is_true(root, "zero_optimization.gather_16bit_weights_on_model_save") ||
                       is_true(root, "zero_optimization.stage3_gather_fp16_weights_on_model_save") ||
                       text(root, "zero_optimization.stage3_gather_16bit_weights_on_model_save") == "auto";
  if (in.is_hf() && in.stage == 3 && !gathers) {
    in.report.add("DSJ028", in.d, in.key("zero_optimization"),
                  "the trainer saves shards instead of a model: stage 3 gathers the weights only when asked to");
  }
  bool has_lora = false, generates = false;
  const Document* skips_sync = nullptr;
  for (const auto& other : in.setup.documents) {
    const Value& t = other->root;
    has_lora =
        has_lora || is_true(t, "use_peft") || text(t, "adapter") == "lora" || text(t, "finetuning_type") == "lora" || has(t, "lora_r");
    generates = generates || is_true(t, "predict_with_generate");
    if (is_false(t, "accelerator_config.gradient_accumulation_kwargs.sync_each_batch")) skips_sync = other.get();
  }
  if (in.stage == 3 && generates) {
    in.report.add("DSJ037", in.d, in.key("zero_optimization"),
                  "stage 3 with generation: ranks that finish at different lengths wait for each other for ever");
  }
  if (in.stage >= 2 && skips_sync != nullptr) {
    in.report.add("DSJ038", *skips_sync,
                  key_span(*skips_sync, node(skips_sync->root, "accelerator_config.gradient_accumulation_kwargs.sync_each_batch")),
                  fmt::format("stage {} cannot skip the reduction of gradients between micro-batches", in.stage));
  }
  const auto threshold = real(root, "zero_optimization.stage3_param_persistence_threshold");
  if (in.stage == 3 && has_lora && threshold && *threshold < 1e5) {
    in.report.add("DSJ041", in.d, in.val("zero_optimization.stage3_param_persistence_threshold"),
                  fmt::format("LoRA in stage 3 with a persistence threshold of {}: adapters are gathered one by one", *threshold));
  }
}

void ds_parallel(const DeepspeedFile& in) {
  const Value& root = in.root;
  for (const char* name : {"enabled", "tp_size"}) {
    const std::string path = fmt::format("tensor_parallel.{}", name);
    if (!has(root, path)) continue;
    std::vector<LintEdit> edits;
    const TextSpan at = in.key(path);
    if (std::string_view(name) == "tp_size" && !has(root, "tensor_parallel.autotp_size"))
      edits.push_back({at.begin, at.end, "\"autotp_size\""});
    in.report.add("DSJ031", in.d, at, fmt::format("DeepSpeed refuses '{}': the key is autotp_size", path), {"", "", edits, {}});
  }
  if (real(root, "tensor_parallel.autotp_size").value_or(0) > 1 && in.stage == 3) {
    in.report.add("DSJ032", in.d, in.key("tensor_parallel.autotp_size"),
                  "AutoTP with stage 3: the documents disagree on whether it runs");
  }
  if (in.is_old && is_true(root, "elasticity.enabled") && !is_true(root, "elasticity.ignore_non_elastic_batch_info")) {
    for (const char* name : {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"}) {
      if (has(root, name))
        in.report.add("DSJ033", in.d, in.key(name),
                      fmt::format("elastic training computes the batch itself, and '{}' is given", name));
    }
  }
  static const std::set<std::string, std::less<>> kFp16Only = {"auto_cast",
                                                               "loss_scale",
                                                               "initial_scale_power",
                                                               "loss_scale_window",
                                                               "hysteresis",
                                                               "min_loss_scale",
                                                               "consecutive_hysteresis",
                                                               "opt_level",
                                                               "fp16_master_weights_and_grads"};
  const std::string version = in.setup.version("deepspeed");
  const bool is_refused = !version.empty() && compare_versions(version, "0.17.2") >= 0;
  for (const char* section : {"bf16", "bfloat16", "fp16"}) {
    const TreeNode at = node(root, section);
    if (!at) continue;
    for (size_t i = 0; i < at.value->entries.size(); ++i) {
      const std::string& name = at.value->entries[i].first;
      const bool is_foreign = std::string_view(section) == "fp16" ? name == "opt_level" : kFp16Only.count(name) > 0;
      if (!is_foreign) continue;
      in.report.add("DSJ034", in.d, key_span(in.d, {&at.value->entries[i].second, at.value, i}),
                    fmt::format("DeepSpeed refuses '{}.{}' since June 2025: older releases silently ignore it", section, name),
                    {"", "", {}, is_refused ? std::optional<Severity>(Severity::kError) : std::nullopt});
    }
  }
  if (has(root, "aio.thread_count")) {
    const TextSpan at = in.key("aio.thread_count");
    std::vector<LintEdit> edits;
    if (!has(root, "aio.intra_op_parallelism")) edits.push_back({at.begin, at.end, "\"intra_op_parallelism\""});
    in.report.add("DSJ035", in.d, at, "'aio.thread_count' is silently ignored: it was renamed", {"", "", edits, {}});
  }
  const TreeNode zero = node(root, "zero_optimization");
  if (zero && zero.value->kind == Value::Kind::kMap && !has(root, "zero_optimization.stage")) {
    in.report.add("DSJ036", in.d, in.key("zero_optimization"),
                  "'zero_optimization' without 'stage' is stage 0: the rest of it is silently ignored",
                  {.error_if = is_for_trainer(in) ? "" : "no script puts the stage in"});
  }
}

}  // namespace

void check_deepspeed_run(const DeepspeedFile& in) {
  ds_schedules(in);
  ds_consumers(in);
  ds_parallel(in);
}

}  // namespace distsetup::lint
