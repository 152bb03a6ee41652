// A structured file is its kind by the keys at its top: each kind has marks, the kind with most of them wins; a key that only one kind
// has decides. Texts without structure are told apart by their lines. A file that does not parse is still recognised by its marks as
// text, so that its own rules can say why.
#include "codegen/lint/kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/value.h"
#include "base/value_json.h"
#include "base/value_toml.h"
#include "base/value_yaml.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

struct KindName {
  FileKind kind;
  std::string_view name, says;
};
constexpr std::array<KindName, 23> kKindNames = {{{FileKind::kDeepspeed, "deepspeed", "DeepSpeed configuration"},
                                                  {FileKind::kAccelerate, "accelerate", "accelerate configuration"},
                                                  {FileKind::kTrainer, "trainer", "Hugging Face TrainingArguments"},
                                                  {FileKind::kTrl, "trl", "TRL configuration"},
                                                  {FileKind::kTrainerFsdp, "trainer-fsdp", "fsdp_config of the Hugging Face Trainer"},
                                                  {FileKind::kTorchtitan, "torchtitan", "torchtitan TOML"},
                                                  {FileKind::kAxolotl, "axolotl", "Axolotl YAML"},
                                                  {FileKind::kLlamaFactory, "llamafactory", "LLaMA-Factory YAML"},
                                                  {FileKind::kLightning, "lightning", "LightningCLI YAML"},
                                                  {FileKind::kAutomodel, "automodel", "NeMo Automodel YAML"},
                                                  {FileKind::kMegatronBridge, "megatron-bridge", "Megatron-Bridge overrides"},
                                                  {FileKind::kLlamaStack, "llama-stack", "Llama Stack run file or request"},
                                                  {FileKind::kKubernetes, "kubernetes", "Kubernetes manifest"},
                                                  {FileKind::kSkypilot, "skypilot", "SkyPilot task"},
                                                  {FileKind::kSbatch, "sbatch", "SLURM job script"},
                                                  {FileKind::kPbs, "pbs", "PBS job script"},
                                                  {FileKind::kLsf, "lsf", "LSF job script"},
                                                  {FileKind::kShell, "shell", "shell script or command line"},
                                                  {FileKind::kArguments, "arguments", "list of arguments"},
                                                  {FileKind::kHostfile, "hostfile", "hostfile"},
                                                  {FileKind::kEnvironment, "environment", "environment variables"},
                                                  {FileKind::kRequirements, "requirements", "required packages"},
                                                  {FileKind::kPlan, "plan", "plan.json"}}};

struct Marks {
  FileKind kind;
  std::vector<std::string_view> keys;
  std::vector<std::string_view> own = {};  // no file of the kind is without one of them, and no other kind has them
};
const std::vector<Marks>& marks() {
  static const std::vector<Marks> kMarks = {
      {FileKind::kPlan, {"schema_version", "verdict", "schedule_digest", "inputs_digest"}},
      {FileKind::kDeepspeed,
       {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_clipping", "steps_per_print",
        "zero_allow_untested_optimizer", "wall_clock_breakdown", "activation_checkpointing", "flops_profiler", "comms_logger",
        "zero_force_ds_cpu_optimizer", "elasticity", "aio", "prescale_gradients", "communication_data_type"}},
      {FileKind::kAccelerate,
       {"compute_environment", "distributed_type", "num_processes", "num_machines", "machine_rank", "main_process_ip", "rdzv_backend",
        "same_network", "downcast_bf16", "deepspeed_config", "parallelism_config", "main_training_function"}},
      {FileKind::kTrainer,
       {"per_device_train_batch_size", "gradient_checkpointing", "deepspeed", "fsdp", "output_dir", "num_train_epochs",
        "save_strategy", "logging_steps", "learning_rate", "lr_scheduler_type", "warmup_ratio", "model_name_or_path",
        "ddp_find_unused_parameters", "save_only_model", "max_steps", "gradient_checkpointing_kwargs",
        "average_tokens_across_devices"}},
      {FileKind::kTrainerFsdp,
       {"reshard_after_forward", "transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap", "auto_wrap_policy",
        "fsdp_auto_wrap_policy", "cpu_ram_efficient_loading", "fsdp_state_dict_type", "state_dict_type", "fsdp_version",
        "backward_prefetch", "fsdp_backward_prefetch", "xla"}},
      {FileKind::kAxolotl,
       {"base_model", "datasets", "micro_batch_size", "sequence_len", "adapter", "fsdp_version", "fsdp_config",
        "dataset_prepared_path", "val_set_size", "dp_shard_size", "sample_packing", "optimizer"},
       {"base_model", "sequence_len"}},
      {FileKind::kLlamaFactory,
       {"stage", "finetuning_type", "template", "cutoff_len", "dataset_dir", "overwrite_cache", "preprocessing_num_workers",
        "pure_bf16", "use_unsloth", "pissa_init", "do_train", "lora_target", "quantization_bit"},
       {"finetuning_type"}},
      {FileKind::kLightning, {"seed_everything", "trainer", "fit", "ckpt_path"}},
      {FileKind::kAutomodel, {"distributed", "step_scheduler", "dist_env", "packed_sequence", "loss_fn"}},
      {FileKind::kMegatronBridge,
       {"train", "model", "dataset", "optimizer", "scheduler", "ddp", "dist", "rng", "checkpoint", "tokenizer", "logger",
        "mixed_precision", "comm_overlap", "profiling"},
       {"dist", "rng"}},
      {FileKind::kLlamaStack,
       {"apis", "providers", "metadata_store", "external_providers_dir", "job_uuid", "training_config", "hyperparam_search_config",
        "logger_config", "algorithm_config", "finetuned_model"}},
      {FileKind::kKubernetes, {"apiVersion", "kind", "metadata"}},
      {FileKind::kSkypilot, {"resources", "run", "setup", "num_nodes", "workdir", "file_mounts"}}};
  return kMarks;
}

constexpr size_t kOwnKeyScore = 100;

// Of equal scores the kind that is listed first wins. torchtitan has no marks: its TOML is told by its form.
const Marks* best_marks(const std::set<std::string, std::less<>>& keys) {
  const Marks* best = nullptr;
  size_t best_score = 0;
  for (const Marks& one : marks()) {
    const bool has_own = std::any_of(one.own.begin(), one.own.end(), [&keys](std::string_view key) { return keys.count(key) != 0; });
    if (!one.own.empty() && !has_own) continue;
    size_t score = one.own.empty() ? 0 : kOwnKeyScore;
    for (const std::string_view key : one.keys) score += keys.count(key);
    if (score > best_score) {
      best_score = score;
      best = &one;
    }
  }
  return best;
}

// TrainingArguments with fields that only TRL's trainers have.
bool is_of_trl(const std::set<std::string, std::less<>>& keys) {
  return std::any_of(keys.begin(), keys.end(), [](const std::string& key) {
    static const std::set<std::string, std::less<>> kOfTrl = {"max_length",
                                                              "packing",
                                                              "padding_free",
                                                              "completion_only_loss",
                                                              "assistant_only_loss",
                                                              "dataset_text_field",
                                                              "dataset_kwargs",
                                                              "eos_token",
                                                              "beta",
                                                              "loss_type",
                                                              "use_peft",
                                                              "lora_r",
                                                              "precompute_ref_log_probs",
                                                              "num_generations",
                                                              "max_completion_length",
                                                              "desirable_weight",
                                                              "undesirable_weight",
                                                              "reward_funcs",
                                                              "use_vllm",
                                                              "vllm_mode",
                                                              "dataset_streaming",
                                                              "lora_target_modules",
                                                              "center_rewards_coefficient"};
    return kOfTrl.count(key) != 0;
  });
}

// "{", or a line "word:" before anything else: structured.
bool looks_structured(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    line.remove_prefix(first);
    if (line[0] == '{' || line.substr(0, 3) == "---" || line.substr(0, 5) == "%YAML") return true;
    const size_t colon = line.find(':');
    return colon != std::string_view::npos && line.find_first_of(" =") > colon &&
           (colon + 1 == line.size() || line[colon + 1] == ' ' || line[colon + 1] == '\r');
  }
  return false;
}

// The keys at the top: of the first document when there are several.
std::set<std::string, std::less<>> top_keys(std::string_view text) {
  std::set<std::string, std::less<>> keys;
  size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool has_comment = first != std::string_view::npos && text[first] == '#';
  while (first != std::string_view::npos && text[first] == '#') first = text.find_first_not_of(" \t\r\n", text.find('\n', first));
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  if (is_json) {
    const Result<Value> root = has_comment ? parse_yaml(text, "") : parse_json(text, "");
    if (root.ok()) {
      for (const auto& entry : root->entries) keys.insert(entry.first);
      return keys;
    }
    for (size_t at = text.find('"'); at != std::string_view::npos; at = text.find('"', at + 1)) {  // broken: every quoted word
      const size_t close = text.find('"', at + 1);
      if (close == std::string_view::npos) break;
      keys.emplace(text.substr(at + 1, close - at - 1));
      at = close;
    }
    return keys;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && std::isalpha(static_cast<unsigned char>(line[0])) != 0) keys.emplace(line.substr(0, colon));
  }
  return keys;
}

struct LineCounts {
  size_t lines = 0, options = 0, settings = 0, slots = 0, packages = 0;
};

LineCounts count_lines(std::string_view text) {
  LineCounts n;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    line.remove_prefix(first);
    ++n.lines;
    const size_t name = line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.");
    n.options += line.substr(0, 2) == "--" ? 1 : 0;
    n.settings += name != std::string_view::npos && name > 0 && line[name] == '=' && line.substr(name, 2) != "==" ? 1 : 0;
    n.slots += line.find("slots") != std::string_view::npos ? 1 : 0;
    n.packages += name != std::string_view::npos && name > 0 && line.substr(name, 2) == "==" ? 1 : 0;
  }
  return n;
}

bool has_toml_section(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text[at] == '[' && text.substr(at, end - at).find(']') != std::string_view::npos) return true;
    at = end + 1;
  }
  return false;
}

bool ends_with(std::string_view path, std::string_view end) {
  return path.size() >= end.size() && path.substr(path.size() - end.size()) == end;
}

}  // namespace

bool is_script(FileKind kind) {
  return kind == FileKind::kSbatch || kind == FileKind::kPbs || kind == FileKind::kLsf || kind == FileKind::kShell;
}

bool takes_training_arguments(FileKind kind) {
  return kind == FileKind::kTrainer || kind == FileKind::kTrl || kind == FileKind::kLlamaFactory;
}

std::string_view kind_name(FileKind kind) {
  for (const KindName& one : kKindNames) {
    if (one.kind == kind) return one.name;
  }
  return "";
}

std::string_view kind_says(FileKind kind) {
  for (const KindName& one : kKindNames) {
    if (one.kind == kind) return one.says;
  }
  return "";
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const KindName& one : kKindNames) names.emplace_back(one.name);
  return names;
}

Result<FileKind> kind_of_name(std::string_view name) {
  for (const KindName& one : kKindNames) {
    if (same_name(one.name, name)) return one.kind;
  }
  std::string list;
  for (const std::string& one : kind_names()) list += (list.empty() ? "" : ", ") + one;
  return error(code::kUnknownValue, {"command line", 0, 0}, fmt::format("'--as' is '{}', expected one of {}", name, list),
               suggest(name, kind_names()));
}

Result<FileKind> recognise(std::string_view path, std::string_view text) {
  const auto has_line = [text](std::string_view mark) {
    return text.substr(0, mark.size()) == mark || text.find("\n" + std::string(mark)) != std::string_view::npos;
  };
  if (has_line("#SBATCH")) return FileKind::kSbatch;
  if (has_line("#PBS ")) return FileKind::kPbs;
  if (has_line("#BSUB ")) return FileKind::kLsf;
  const std::string_view base = path.substr(path.rfind('/') + 1);
  if (text.substr(0, 2) == "#!" || ends_with(path, ".sh") || ends_with(path, ".bash")) return FileKind::kShell;
  if (ends_with(path, ".toml") || (!looks_structured(text) && has_toml_section(text))) return FileKind::kTorchtitan;
  const bool is_structured = looks_structured(text) || ends_with(path, ".json") || ends_with(path, ".yaml") || ends_with(path, ".yml");
  if (is_structured) {
    const std::set<std::string, std::less<>> keys = top_keys(text);
    const auto is_section = [](const std::string& key) {
      return key == "model" || key == "training" || key == "distributed" || key == "optimizer" || key == "scheduler" ||
             key == "data" || key == "fsdp" || key == "wandb" || key == "logging" || key == "dataset" || key == "output" ||
             key == "evaluation";
    };
    const auto has = [&keys](const char* key) { return keys.count(key) != 0; };
    const bool is_sectioned =
        has("fine_tuning") || has("training_stages") || has("distributed_examples") || (has("training") && has("distributed"));
    const bool is_part = (has("training") || has("distributed") || has("fsdp") || has("wandb") || has("logging")) &&
                         std::all_of(keys.begin(), keys.end(), is_section);
    const Marks* best = is_sectioned ? nullptr : best_marks(keys);
    if (best != nullptr) return best->kind == FileKind::kTrainer && is_of_trl(keys) ? FileKind::kTrl : best->kind;
    if (is_sectioned || is_part)
      return error(code::kUnknownValue, {std::string(path), 1, 1},
                   "the file is a config.yaml in sections (training, distributed), which lint has no rules for",
                   fmt::format("distsetup convert --to run {}   # says of every key what it does", quote_shell(path)));
  } else if (const LineCounts n = count_lines(text); n.lines > 0) {
    if (n.packages == n.lines || base.rfind("requirements", 0) == 0) return FileKind::kRequirements;
    if (n.settings == n.lines || base == ".deepspeed_env" || base.rfind(".env", 0) == 0) return FileKind::kEnvironment;
    if (base.find("hostfile") != std::string_view::npos || n.slots > 0) return FileKind::kHostfile;
    if (text.substr(text.find_first_not_of(" \t\r\n"), 2) == "--") return FileKind::kArguments;
    for (const std::string_view launcher :
         {"torchrun", "torch.distributed", "srun ", "deepspeed ", "accelerate launch", "mpirun ", "mpiexec ", "python", "export "}) {
      if (text.find(launcher) != std::string_view::npos) return FileKind::kShell;
    }
  }
  std::string known;
  for (const std::string& one : kind_names()) known += (known.empty() ? "" : ", ") + one;
  return error(code::kUnknownValue, {std::string(path), 1, 1},
               "the file looks like none of the kinds that lint knows, expected one of: " + known,
               "say which it is with --as, such as --as deepspeed");
}

}  // namespace distsetup
