#include "service/training_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace distsetup {
namespace {

struct KeyFlag {
  const char* key;
  const char* flag;
};

// Keys whose text is the flag's.
constexpr std::array<KeyFlag, 8> kRequestFlags = {{{"algorithm_config.beta", "--beta"},
                                                   {"algorithm_config.loss_type", "--loss"},
                                                   {"algorithm_config.label_smoothing", "--label-smoothing"},
                                                   {"algorithm_config.rank", "--lora-rank"},
                                                   {"algorithm_config.alpha", "--lora-alpha"},
                                                   {"training_config.optimizer_config.weight_decay", "--weight-decay"},
                                                   {"training_config.optimizer_config.num_warmup_steps", "--warmup-steps"},
                                                   {"training_config.optimizer_config.warmup_ratio", "--warmup-ratio"}}};
constexpr std::array<KeyFlag, 3> kProviderFlags = {
    {{"dpo_beta", "--beta"}, {"dpo_loss_type", "--loss"}, {"label_smoothing", "--label-smoothing"}}};

// The service's own: names, data, where and how often a job runs.
constexpr auto kActing = std::to_array<const char*>({"job_uuid",
                                                     "image_name",
                                                     "apis",
                                                     "provider.*",
                                                     "metadata_store.*",
                                                     "external_providers_dir",
                                                     "models",
                                                     "finetuned_model",
                                                     "model",
                                                     "priority",
                                                     "checkpoint_dir",
                                                     "algorithm_config.type",
                                                     "algorithm_config.lora_attn_modules",
                                                     "algorithm_config.apply_lora_to_mlp",
                                                     "algorithm_config.quantize_base",
                                                     "training_config.n_epochs",
                                                     "training_config.max_steps_per_epoch",
                                                     "training_config.dtype",
                                                     "training_config.data_config.dataset_id",
                                                     "training_config.data_config.train_split_percentage",
                                                     "training_config.data_config.packed",
                                                     "training_config.data_config.shuffle",
                                                     "training_config.optimizer_config.optimizer_type",
                                                     "training_config.efficiency_config.enable_activation_checkpointing",
                                                     "training_config.efficiency_config.enable_activation_offloading",
                                                     "training_config.efficiency_config.fsdp_cpu_offload",
                                                     "torch_run_config.node_rank",
                                                     "torch_run_config.master_addr",
                                                     "torch_run_config.master_port",
                                                     "torch_run_config.max_restarts",
                                                     "service_config.*",
                                                     "serve.*",
                                                     "device",
                                                     "cuda_devices",
                                                     "checkpoint_format",
                                                     "use_reference_model",
                                                     "providers.*",
                                                     "server.*",
                                                     "training_config.data_config.validation_dataset_id",
                                                     "training_config.data_config.train_on_input",
                                                     "hyperparam_search_config.*",
                                                     "fsdp_config.cpu_offload",
                                                     "datasetio.*",
                                                     "shields",
                                                     "version"});

const Json* find_key(const Json& json, std::string_view key) {
  const Json* at = &json;
  while (!key.empty()) {
    const size_t dot = std::min(key.find('.'), key.size());
    const auto next = at->is_object() ? at->find(std::string(key.substr(0, dot))) : at->end();
    if (!at->is_object() || next == at->end()) return nullptr;
    at = &*next;
    key.remove_prefix(std::min(dot + 1, key.size()));
  }
  return at->is_null() ? nullptr : at;
}

bool is_true(const Json& json, std::string_view key) {
  const Json* value = find_key(json, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::string value_text(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

class WordList {
 public:
  explicit WordList(const std::vector<std::string>& fields) : fields_(fields) {}
  bool has(const std::string& flag) const { return std::find(words.begin(), words.end(), flag) != words.end(); }
  void add(const std::string& flag, const std::string& value) {
    if (!has(flag)) words.insert(words.end(), {flag, value});
  }
  // What is neither in the request nor in the configuration.
  void add_default(const char* field, const std::string& flag, const std::string& value) {
    if (std::find(fields_.begin(), fields_.end(), field) == fields_.end()) add(flag, value);
  }
  std::vector<std::string> words;

 private:
  const std::vector<std::string>& fields_;
};

void add_adapter(const Json& request, WordList& list) {
  const Json* type = find_key(request, "algorithm_config.type");
  if (type == nullptr || *type != "LoRA") return;
  list.add("--adapter", is_true(request, "algorithm_config.quantize_base") ? "qlora" : "lora");
  std::string targets;
  const auto target = [&targets](const std::string& name) { targets += (targets.empty() ? "" : ",") + name; };
  if (const Json* modules = find_key(request, "algorithm_config.lora_attn_modules")) {
    for (const Json& one : *modules) target(one == "output_proj" ? "o_proj" : one.get<std::string>());
  }
  if (is_true(request, "algorithm_config.apply_lora_to_mlp")) {
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) target(name);
  }
  if (!targets.empty()) list.add("--lora-targets", targets);
}

constexpr const char* kFsdpOffload = "training_config.efficiency_config.fsdp_cpu_offload";

void add_efficiency(const Json& request, PlannedFor whom, WordList& list) {
  const std::string section = "training_config.efficiency_config.";
  if (is_true(request, section + "enable_activation_checkpointing")) list.add("--recompute", "full");
  if (is_true(request, section + "enable_activation_offloading")) list.add("--offload-activations", "host");
  if (is_true(request, kFsdpOffload)) {
    list.add("--offload-parameters", whom == PlannedFor::kJob ? "none" : "host");
    list.add("--offload-optimizer", "host");
  }
}

// Of "Question: {prompt}\nAnswer: {response}" the words around the prompt, as `distsetup data prepare` takes them; nothing: the
// response does not stand at its end, or the prompt is not there once.
std::optional<std::string> prompt_format_of(const std::string& chat_template) {
  constexpr std::string_view kPrompt = "{prompt}", kResponse = "{response}";
  if (!chat_template.ends_with(kResponse)) return std::nullopt;
  const std::string text = chat_template.substr(0, chat_template.size() - kResponse.size());
  const size_t at = text.find(kPrompt);
  if (at == std::string::npos || text.find(kPrompt, at + 1) != std::string::npos || text.find(kResponse) != std::string::npos)
    return std::nullopt;
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == at) {
      out += "{}";
      i += kPrompt.size() - 1;
    } else {
      out += text[i];
      if (text[i] == '{' || text[i] == '}') out += text[i];
    }
  }
  return out;
}

// What a request or the configuration asks for, and the trainer has no use for.
void add_idle(const Json& request, const Json& provider, std::vector<BodyMistake>& idle) {
  struct IdleKey {
    const char *key, *why;
  };
  constexpr auto kIdle = std::to_array<IdleKey>(
      {{"algorithm_config.reward_scale", "DPO has no reward that could be scaled; how closely the model is held is beta"},
       {"algorithm_config.reward_clip", "DPO has no reward that could be clipped"},
       {"algorithm_config.epsilon", "DPO has no such number"},
       {"algorithm_config.gamma", "DPO has no such number"},
       {"training_config.data_config.data_format", "each row says by its keys what it is"}});
  for (const IdleKey& one : kIdle)
    if (const Json* value = find_key(request, one.key)) idle.push_back({one.key, value_text(*value), one.why});
  constexpr const char* kPrefetch = "fsdp_config.backward_prefetch";
  if (const Json* value = find_key(provider, kPrefetch); value != nullptr && *value != "BACKWARD_PRE")
    idle.push_back({kPrefetch, value_text(*value), "the trainer gathers the next unit beside each backward, as BACKWARD_PRE does"});
}

void add_notes(const Json& request, const Json& provider, const ServiceSettings& settings, PlannedFor whom, TrainingWords& out,
               WordList& list) {
  if (whom == PlannedFor::kJob && (is_true(provider, "fsdp_config.cpu_offload") || is_true(request, kFsdpOffload))) {
    list.add("--offload-parameters", "none");
    list.add("--offload-optimizer", "host");
    out.notes.emplace_back("cpu_offload: masters and moments are on the host and updated there; parameters stay on the device");
  }
  if (const Json* format = find_key(provider, "checkpoint_format"))
    out.notes.push_back(
        fmt::format("checkpoint_format {}: checkpoints are sharded and readable on other world sizes, the model at the "
                    "end is consolidated as Hugging Face has it; both are written in every case",
                    value_text(*format)));
  if (const Json* every = find_key(provider, "logging_steps"); every != nullptr && every->is_number_integer()) {
    if (settings.launcher == LauncherKind::kSlurm) {
      out.notes.emplace_back("logging_steps: not passed on to jobs of SLURM, which log a hundred lines");
    } else {
      out.log_every = std::max<int64_t>(0, every->get<int64_t>());
    }
    out.acting_keys.emplace_back("logging_steps");
  }
  if (const Json* words = find_key(provider, "chat_template"); words != nullptr && words->is_string()) {
    out.prompt_format = prompt_format_of(words->get<std::string>()).value_or("");
    out.acting_keys.emplace_back("chat_template");
  }
}

}  // namespace

TrainingWords training_words(const Json& request, const Json& provider, const std::vector<std::string>& fields,
                             const ServiceSettings& settings, const std::string& method, PlannedFor whom) {
  TrainingWords out;
  WordList list(fields);
  const bool is_inline = settings.mode == ServiceMode::kInline, is_dpo = method == "dpo";
  list.add("--trainer", "native");
  list.add("--method", method);
  list.add("--nodes", std::to_string(settings.nodes));
  list.add("--gpus", std::to_string(settings.ranks_per_node));
  if (settings.device == "cpu")
    list.add("--gpu", "cpu");
  else if (!settings.gpu.empty())
    list.add("--gpu", settings.gpu);
  for (const KeyFlag& one : kRequestFlags) {
    const Json* value = find_key(request, one.key);
    if (value != nullptr) list.add(one.flag, value_text(*value));
    out.acting_keys.emplace_back(one.key);
  }
  if (is_dpo) {
    for (const KeyFlag& one : kProviderFlags) {
      if (const Json* value = find_key(provider, one.key)) list.add(one.flag, value_text(*value));
      out.acting_keys.emplace_back(one.key);
    }
    const Json* reference = find_key(provider, "use_reference_model");
    if (reference != nullptr && *reference == false) list.add("--reference", "none");
  }
  if (const Json* type = find_key(request, "training_config.optimizer_config.optimizer_type")) {
    list.add("--optimizer", *type == "sgd" ? "sgd" : "adamw");
    if (*type == "adam") list.add("--weight-decay", "0");
  }
  if (const Json* dtype = find_key(request, "training_config.dtype")) {
    const std::string text = value_text(*dtype);
    list.add("--precision", text == "bfloat16" || text == "bf16" ? "bf16" : text == "float16" || text == "fp16" ? "fp16" : "fp32");
  }
  const Json* shuffle = find_key(request, "training_config.data_config.shuffle");
  if (shuffle != nullptr && *shuffle == false && whom == PlannedFor::kJob) list.add("--shuffle", "false");
  add_adapter(request, list);
  add_efficiency(request, whom, list);
  add_notes(request, provider, settings, whom, out, list);
  add_idle(request, provider, out.idle);
  list.add_default("micro_batch", "--micro-batch", "2");
  list.add_default("gradient_accumulation", "--gradient-accumulation", "1");
  list.add_default("train.sequence_length", "--sequence-length", is_inline ? "2048" : "4096");
  list.add_default("train.learning_rate", "--learning-rate", is_inline ? "1e-4" : "5e-5");
  list.add_default("train.weight_decay", "--weight-decay", "0.01");
  if (!list.has("--warmup-steps") && std::find(fields.begin(), fields.end(), "train.warmup_steps") == fields.end())
    list.add_default("derived.warmup_ratio", "--warmup-ratio", "0.1");
  if (settings.world() > 1 && !list.has("--adapter")) list.add_default("strategy.sharding", "--sharding", "zero3");
  list.add_default("train.seed", "--seed", "42");
  out.words = std::move(list.words);
  out.acting_keys.insert(out.acting_keys.end(), kActing.begin(), kActing.end());
  return out;
}

std::vector<BodyMistake> unsupported_settings(const Json& request, const Json& provider, const ServiceSettings& settings,
                                              const std::string& method) {
  std::vector<BodyMistake> out;
  const auto refuse = [&out](const char* key, const std::string& what, const char* help) {
    out.push_back({key, "is not supported here: " + what, help});
  };
  if (const Json* type = find_key(request, "algorithm_config.type"); type != nullptr && *type == "QAT")
    refuse("algorithm_config.type", "the trainer has no quantisation-aware training",
           "LoRA with quantize_base trains beside 4-bit weights");
  if (const Json* loss = find_key(request, "algorithm_config.loss_type"); loss != nullptr && *loss == "kto_pair")
    refuse("algorithm_config.loss_type", "the trainer has no loss kto_pair", "sigmoid, hinge or ipo");
  if (is_true(request, "algorithm_config.use_dora"))
    refuse("algorithm_config.use_dora", "adapters have no magnitudes", "use_dora: false");
  if (is_true(request, "algorithm_config.apply_lora_to_output"))
    refuse("algorithm_config.apply_lora_to_output", "no adapter stands beside the head", "apply_lora_to_output: false");
  if (method == "dpo" && is_true(request, "training_config.data_config.train_on_input"))
    refuse("training_config.data_config.train_on_input", "of preference pairs answers are compared, and prompts are not trained",
           "train_on_input: false");
  const bool has_validation = find_key(request, "training_config.data_config.validation_dataset_id") != nullptr;
  if (has_validation && find_key(request, "training_config.data_config.train_split_percentage") != nullptr)
    out.push_back({"training_config.data_config.train_split_percentage",
                   "is there beside validation_dataset_id: both say what is held out", "leave one of them out"});
  const Json* grid = find_key(request, "hyperparam_search_config");
  if (grid != nullptr && !grid->empty() && settings.launcher != LauncherKind::kLocal)
    refuse("hyperparam_search_config", "settings are searched on the service's own machine, and jobs run on others",
           "a service with --launcher local");
  if (const Json* words = find_key(provider, "chat_template"))
    if (!words->is_string() || !prompt_format_of(words->get<std::string>()))
      refuse("chat_template", "the response stands at its end, behind {prompt}", "\"Question: {prompt}\\nAnswer: {response}\"");
  const Json* split = find_key(request, "training_config.data_config.train_split_percentage");
  if (split != nullptr && split->get<double>() < 0.5)
    refuse("training_config.data_config.train_split_percentage", "half of the rows or fewer would be trained", "0.5 to 1");
  const Json* rate = find_key(request, "training_config.learning_rate");
  const Json* other = find_key(request, "training_config.optimizer_config.lr");
  if (rate != nullptr && other != nullptr && rate->get<double>() != other->get<double>())
    out.push_back({"training_config.learning_rate",
                   fmt::format("is {}, and optimizer_config.lr is {}: both set the learning rate", rate->dump(), other->dump()),
                   "leave one of them out"});
  return out;
}

StepCounts count_steps(const Json& request, int64_t num_rows, int64_t global_batch) {
  StepCounts out;
  if (const Json* split = find_key(request, "training_config.data_config.train_split_percentage")) {
    const double rest = 1 - split->get<double>();
    out.held_out_one_in = rest < 1e-9 ? 0 : std::llround(1 / rest);
  }
  if (find_key(request, "training_config.data_config.validation_dataset_id") != nullptr) out.held_out_one_in = 0;
  if (num_rows < 10 && out.held_out_one_in > num_rows) out.held_out_one_in = 0;  // too few to hold one out
  out.train_rows = num_rows - (out.held_out_one_in > 0 ? num_rows / out.held_out_one_in : 0);
  out.steps_per_epoch = std::max<int64_t>(1, out.train_rows / std::max<int64_t>(1, global_batch));
  if (const Json* most = find_key(request, "training_config.max_steps_per_epoch"); most != nullptr && most->get<int64_t>() > 0)
    out.steps_per_epoch = std::min(out.steps_per_epoch, most->get<int64_t>());
  if (const Json* epochs = find_key(request, "training_config.n_epochs")) out.epochs = epochs->get<int64_t>();
  out.steps = out.steps_per_epoch * out.epochs;
  return out;
}

}  // namespace distsetup
