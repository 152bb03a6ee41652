// Settings that are accepted and not read. Generated over the table of settings, so that a new key is covered when it is added.
#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "data/set_writer.h"
#include "model/hf_write.h"
#include "model/presets.h"
#include "plan/frozen.h"
#include "plan/layout.h"
#include "plan/plan_json.h"
#include "planner/search/make_plan.h"
#include "planner/spec/spec_table.h"
#include "support/problems.h"
#include "support/published_folder.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

const Location kBase = {"the base"}, kTested = {"the setting under test"};

constexpr const char kConspicuous[] = "40";  // no base has it
using Settings = std::map<std::string, std::string>;

Spec spec_of(const Settings& settings) {
  Spec spec;
  for (const auto& [path, text] : settings) {
    CAPTURE(path, text);
    REQUIRE_FALSE(has_error(set(spec, path, text, kBase)));
  }
  return spec;
}

// A refusal is an answer only when it blames the setting under test: by its place, its name, or a value that stands nowhere else.
bool is_about(const Diagnostics& refusal, const SpecKey& key, const std::string& text) {
  const std::string name(key.path.substr(key.path.rfind('.') + 1));
  std::string words = name;
  std::replace(words.begin(), words.end(), '_', ' ');
  for (const Diagnostic& one : refusal) {
    if (one.severity != Severity::kError) continue;
    if (text == kConspicuous && one.message.find(text) != std::string::npos) return true;
    if (one.location == kTested || one.message.find(name) != std::string::npos || one.message.find(words) != std::string::npos)
      return true;
  }
  return false;
}

// The plan as text without what follows from the words of the spec rather than from their meaning.
Result<std::string> plan_text(const Spec& spec, const std::string& root) {
  const Result<Inputs> inputs = read_inputs(spec, presets(), root);
  if (!inputs.ok()) return inputs.diagnostics;
  const Result<Problem> problem = resolve(spec, presets(), *inputs);
  if (!problem.ok()) return problem.diagnostics;
  Result<Plan> plan = make_plan(*problem);
  if (!plan.ok()) return plan.diagnostics;
  plan->assumptions.clear();
  plan->inputs_digest.clear();
  return dump_json(to_json(*plan));
}

// Values to try for a key; at least one of them must show.
std::vector<std::string> samples(const SpecKey& key) {
  static const std::map<std::string, std::vector<std::string>, std::less<>> kChosen = {
      {"model", {"tiny_tied"}},
      {"model.weights", {"weights"}},
      {"hardware.gpu", {"h100_sxm"}},
      {"hardware.machine", {"dgx_a100"}},
      {"hardware.total_gpus", {"4"}},
      {"data.paths", {"more"}},
      {"checkpoint.directory", {"elsewhere"}},
      {"launch.target", {"slurm"}},
      {"launch.via", {"slurm"}},
      {"launch.site", {"my_site"}},
      {"train.warmup_steps", {"17"}},
      {"train.global_batch", {"8"}},
      {"train.global_batch_tokens", {"2048"}},
      {"train.sequence_length", {"32"}},
      {"hardware.nodes", {"2"}},
      {"trainer.program", {"torchtitan_eager", "hf_eager"}},
      {"trainer.transformers", {"4.44"}},
      {"train.lora_targets", {"query,value"}},
      {"train.trainable", {"model.layers.0.mlp", "layers"}},
      {"adapter.from", {"adapter"}},
      {"train.min_learning_rate", {"1e-5", "0.05"}},
      {"train.spike_factor", {"3"}},
      {"train.clip_threshold", {"2"}},
      {"train.beta2_decay", {"-0.5"}},
      {"data.held_out", {"2", "4"}},
      {"checkpoint.failure_hours", {"10", "1e9"}},
      {"parallel.virtual_stages", {"2", "4"}},
  };
  if (const auto it = kChosen.find(key.path); it != kChosen.end()) return it->second;
  switch (key.type) {
    case SettingType::kBool: return {"true", "false"};
    case SettingType::kInt: return {"2", "4", "1", kConspicuous};
    case SettingType::kDouble: return {"0.05", "0.5"};
    case SettingType::kShare: return {"5%"};
    case SettingType::kBytes: return {"3GiB"};
    case SettingType::kDuration: return {"77s"};
    case SettingType::kList:
    case SettingType::kSources:
    case SettingType::kText: return {"text"};
    case SettingType::kEnum: break;
  }
  std::vector<std::string> all;
  for (const SettingChoice& choice : key.choices) all.emplace_back(choice.value == "every_k" ? "every_k:2" : choice.value);
  return all;
}

// Plans to hold a setting against: the bundled trainer's first, then those of the trainers that have what it has not.
std::vector<Settings> bases() {
  const Settings native = {{"model", "tiny"},
                           {"trainer.name", "native"},
                           {"hardware.gpu", "cpu"},
                           {"hardware.gpus_per_node", "2"},
                           {"train.sequence_length", "64"},
                           {"train.global_batch", "16"},
                           {"train.steps", "200"},
                           {"data.paths", "text"}};
  std::vector<Settings> all = {native};
  for (const char* trainer : {"megatron", "fsdp2", "deepspeed"}) {
    all.push_back({{"model", "llama3.2_1b"},
                   {"trainer.name", trainer},
                   {"hardware.gpu", "h100_sxm"},
                   {"hardware.gpus_per_node", "8"},
                   {"hardware.nodes", "2"},
                   {"train.sequence_length", "2048"},
                   {"train.global_batch", "64"},
                   {"train.steps", "200"}});
  }
  return all;
}

// Settings without which one has nothing to act on, and settings that say the same thing in another way.
Settings base_for(Settings base, std::string_view path) {
  static const std::map<std::string, Settings, std::less<>> kNeeds = {
      {"checkpoint.failure_hours", {{"checkpoint.save_time", "60s"}}},
      {"hardware.host_memory_bandwidth", {{"parallel.offload.optimizer", "host"}, {"parallel.sharding", "zero3"}}},
      {"hardware.nvme_bandwidth", {{"parallel.offload.optimizer", "nvme"}, {"parallel.sharding", "zero3"}}},
      {"parallel.offload.pin_memory", {{"parallel.offload.optimizer", "host"}, {"parallel.sharding", "zero3"}}},
      {"parallel.offload.optimizer_ratio", {{"parallel.offload.optimizer", "host"}, {"parallel.sharding", "zero3"}}},
      {"train.init", {{"model", "./weights"}}},
      {"train.cuda_graphs", {{"hardware.gpu", "h100_sxm"}}},
      {"train.lr_decay_steps", {{"train.lr_schedule", "step"}}},
      {"train.lr_decay_factor", {{"train.lr_schedule", "step"}}},
      {"train.momentum", {{"train.optimizer", "sgd"}}},
      {"train.nesterov", {{"train.optimizer", "muon"}}},
      {"train.newton_schulz_steps", {{"train.optimizer", "muon"}}},
      {"train.adjust_lr", {{"train.optimizer", "muon"}}},
      {"train.adam_learning_rate", {{"train.optimizer", "muon"}}},
      {"train.beta2_decay", {{"train.optimizer", "adafactor"}}},
      {"train.epsilon2", {{"train.optimizer", "adafactor"}}},
      {"train.clip_threshold", {{"train.optimizer", "adafactor"}}},
      {"train.lora_rank", {{"train.finetune", "lora"}}},
      {"train.lora_targets", {{"train.finetune", "lora"}}},
      {"train.spike_factor", {{"train.on_spike", "note"}}},
      {"train.max_skips", {{"train.on_nan", "skip"}}},
      {"precision.loss_scale", {{"precision.compute", "fp16"}}},
      {"precision.initial_scale_power", {{"precision.compute", "fp16"}}},
      {"precision.loss_scale_window", {{"precision.compute", "fp16"}}},
      {"precision.hysteresis", {{"precision.compute", "fp16"}}},
      {"precision.min_loss_scale", {{"precision.compute", "fp16"}}},
      {"train.loss", {{"train.method", "dpo"}}},
      {"train.beta", {{"train.method", "dpo"}}},
      {"train.label_smoothing", {{"train.method", "dpo"}}},
      {"train.reference", {{"train.method", "dpo"}}},
      {"adapter.alpha", {{"train.finetune", "lora"}}},
      {"adapter.rslora", {{"train.finetune", "lora"}}},
      {"adapter.dropout", {{"train.finetune", "lora"}}},
      {"adapter.from", {{"train.finetune", "lora"}}},
      {"data.packing", {{"data.paths", "set"}}},
      {"parallel.cp_method", {{"parallel.cp", "2"}}},
      {"trainer.linear_attention", {{"model", "qwen3.5_4b"}}},
      {"parallel.sequence_parallel", {{"parallel.tp", "2"}}},
      {"parallel.virtual_stages", {{"parallel.pp", "2"}}},
      {"parallel.hpz", {{"parallel.sharding", "zero3"}}},
      {"parallel.backward_prefetch", {{"trainer.name", "fsdp1"}, {"parallel.sharding", "zero3"}}},
      {"parallel.overlap_grad_reduce", {{"trainer.name", "megatron"}, {"parallel.sharding", "zero1"}}},
      {"parallel.overlap_param_gather", {{"trainer.name", "megatron"}, {"parallel.sharding", "zero1"}}},
      {"parallel.ep", {{"model", "mixtral_8x7b"}, {"hardware.nodes", "8"}}},
  };
  if (const auto it = kNeeds.find(path); it != kNeeds.end()) {
    for (const auto& [needed, text] : it->second) base[needed] = text;
  }
  if (base.contains("train.method")) base.erase("data.paths");  // text, which is for pretrain
  if (path == "train.global_batch_tokens") base.erase("train.global_batch");
  if (path == "hardware.total_gpus") base.erase("hardware.gpus_per_node"), base.erase("hardware.nodes");
  if (path == "train.total_tokens" || path == "train.samples" || path == "train.epochs") base.erase("train.steps");
  if (path == "hardware.machine") base.erase("hardware.gpu");
  return base;
}

}  // namespace

namespace {

// Adapters of rank 2 on q_proj, as PEFT writes a folder of them.
void write_adapter_folder(const std::string& folder, const Geometry& model) {
  Tuning tuning;
  tuning.rank = 2;
  tuning.targets = {"q_proj"};
  const Layout layout = make_layout(model, {}, Sharding::kZero3, 0, 1, tuning);
  const std::vector<float> values(1 << 20);
  std::vector<TensorData> tensors;
  for (const UnitLayout& unit : layout.units)
    for (const Parameter& p : unit.parameters)
      if (is_adapter_name(p.name)) tensors.push_back({peft_name(p.name), p.full_shape, values.data()});
  std::filesystem::create_directory(folder);
  REQUIRE(write_safetensors(folder + "/adapter_model.safetensors", tensors, {{"format", "pt"}}).ok());
  std::ofstream(folder + "/adapter_config.json")
      << R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "lora_dropout": 0.0, "use_dora": false})";
}

}  // namespace

TEST_CASE("regression 6: every key that is accepted is read: it changes a plan") {
  const TemporaryDirectory folder;
  const std::string root = folder.path();
  for (const char* name : {"text", "more"}) {
    std::filesystem::create_directory(root + "/" + name);
    for (int i = 0; i < 8; ++i)
      std::ofstream(fmt::format("{}/{}/{}.txt", root, name, i)) << std::string(3000, static_cast<char>('a' + i)) << name;
  }
  Result<SetWriter> prepared = SetWriter::create(root + "/set");
  REQUIRE(prepared.ok());
  for (int i = 0; i < 100; ++i) CHECK(prepared->add({{1, 2, 3}, {{0, 3}}, TooLong::kContinues, 0}, SetSplit::kTraining).empty());
  REQUIRE(prepared->finish({}).ok());
  const Geometry tiny = *find_model(presets(), "tiny");  // a folder of published weights
  std::filesystem::create_directory(root + "/weights");
  published::write_folder(root + "/weights", published::tensors_of(tiny, "F32"));
  std::ofstream(root + "/weights/config.json") << dump_json(*hf_config_of(presets(), tiny, "float32"));
  write_adapter_folder(root + "/adapter", tiny);
  for (const SpecKey& key : spec_keys()) {
    CAPTURE(key.path);
    bool shows = key.choices.size() == 1;  // one word, the default: nothing to change
    // What sources are made of shows in the set that is made of them, before a plan is (test_prepared_sources.cc).
    for (const std::string_view path :
         {"sources", "weights", "fields", "tokenizer", "template", "prompt_format", "synthetic", "cache"})
      shows = shows || (key.path.starts_with("data.") && key.path.substr(5) == path);
    for (const Settings& trainer : bases()) {
      if (shows) break;
      const Settings base = base_for(trainer, key.path);
      CAPTURE(base);
      const Result<std::string> unchanged = plan_text(spec_of(base), root);
      if (!unchanged.ok()) continue;  // what the setting needs, this trainer has not
      Settings others = base;
      others.erase(std::string(key.path));
      for (const std::string& text : samples(key)) {
        CAPTURE(text);
        Spec spec = spec_of(others);
        const Diagnostics said = set(spec, key.path, text, kTested);
        if (has_error(said)) {
          CHECK(is_about(said, key, text));
          continue;
        }
        const Result<std::string> changed = plan_text(spec, root);
        if (!changed.ok()) {
          INFO(format_diagnostics(changed.diagnostics));
          CHECK(is_about(changed.diagnostics, key, text));
          continue;
        }
        shows = shows || *changed != *unchanged;
      }
    }
    CHECK(shows);
  }
}

TEST_CASE("regression 6: every allowed word of a setting is planned or refused by name") {
  for (const SpecKey& key : spec_keys()) {
    for (const SettingChoice& choice : key.choices) {
      CAPTURE(key.path, choice.value);
      Spec spec = spec_of({{"model", "tiny"},
                           {"hardware.gpu", "cpu"},
                           {"hardware.gpus_per_node", "2"},
                           {"train.sequence_length", "64"},
                           {"train.global_batch", "16"}});
      const std::string text(choice.value == "every_k" ? "every_k:2" : choice.value);
      if (key.path == "train.adjust_lr") REQUIRE(set(spec, "train.optimizer", "muon", kTested).empty());  // of Muon alone
      const Diagnostics said = set(spec, key.path, text, kTested);
      if (!choice.refused.empty()) {
        REQUIRE(has_error(said));
        CHECK(said.front().code == code::kUnsupportedFeature);
        CHECK(is_about(said, key, text));
        continue;
      }
      REQUIRE_FALSE(has_error(said));
      const Result<std::string> planned = plan_text(spec, ".");
      if (planned.ok()) continue;
      INFO(format_diagnostics(planned.diagnostics));
      const std::string& why = planned.diagnostics.front().code;
      CHECK((why == code::kUnsupportedFeature || why == code::kMissingKey));  // or it needs another setting beside it
      CHECK(is_about(planned.diagnostics, key, text));
    }
  }
}
