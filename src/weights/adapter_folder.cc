#include "weights/adapter_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "plan/frozen.h"
#include "weights/convert.h"
#include "weights/match.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAdapterConfig = "adapter_config.json", kTensorsFile = "adapter_model.safetensors";
constexpr std::string_view kPrefix = "base_model.model.";

Diagnostic bad_adapter(const std::string& path, std::string message, std::string help = "") {
  return error(code::kWeights, {path}, std::move(message), std::move(help));
}

// Keys that change what is computed, where they have another value than this.
struct Expected {
  std::string_view key, what;
};
constexpr Expected kRefused[] = {{"use_dora", "DoRA"},
                                 {"lora_bias", "a bias on lora_B"},
                                 {"rank_pattern", "ranks by module"},
                                 {"alpha_pattern", "alphas by module"},
                                 {"modules_to_save", "modules that are trained as a whole"},
                                 {"trainable_token_indices", "rows of the embedding that are trained"},
                                 {"target_parameters", "adapters on parameters"},
                                 {"layer_replication", "layers that are repeated"},
                                 {"use_qalora", "QALoRA"},
                                 {"alora_invocation_tokens", "activated LoRA"},
                                 {"corda_config", "CorDA"},
                                 {"eva_config", "EVA"},
                                 {"arrow_config", "Arrow"},
                                 {"velora_config", "VeLoRA"},
                                 {"exclude_modules", "modules that are left out"},
                                 {"layers_to_transform", "layers by number"}};

bool says_nothing(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || ((value.is_array() || value.is_object()) && value.empty());
}

std::string refused_by(const Json& config) {
  for (const Expected& e : kRefused) {
    const auto found = config.find(e.key);
    if (found != config.end() && !says_nothing(*found)) return fmt::format("{} ('{}')", e.what, e.key);
  }
  const auto bias = config.find("bias");
  if (bias != config.end() && *bias != "none" && !bias->is_null()) return "biases that are trained ('bias')";
  return "";
}

// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" -> "model.layers.0.self_attn.q_proj"; "": it is none.
std::string module_of_tensor(const std::string& name) {
  if (!name.starts_with(kPrefix) || !is_adapter_name(name)) return "";
  const size_t length = std::string_view(".lora_A.weight").size();
  return name.substr(kPrefix.size(), name.size() - kPrefix.size() - length);
}

// Targets as the configuration lists them; where it has a pattern, the modules that have tensors.
std::vector<std::string> targets_of(const Json& config, const std::set<std::string>& modules) {
  const auto found = config.find("target_modules");
  std::vector<std::string> targets;
  if (found != config.end() && found->is_array())
    for (const Json& item : *found)
      if (item.is_string()) targets.push_back(item.get<std::string>());
  std::sort(targets.begin(), targets.end());
  const auto is_meant = [&](const std::string& module) {
    return std::any_of(targets.begin(), targets.end(), [&](const std::string& target) { return is_target(target, module); });
  };
  if (!targets.empty() && std::all_of(modules.begin(), modules.end(), is_meant)) return targets;
  return {modules.begin(), modules.end()};
}

// PEFT writes what an adapter of the head or the embedding is beside, too: the weight of the base model, as it is there.
void leave_out_base(WeightsFolder& folder) {
  constexpr std::string_view kBase = ".base_layer.weight";
  std::erase_if(folder.tensors, [&](const auto& tensor) {
    const std::string& name = tensor.first;
    return name.ends_with(kBase) && folder.tensors.contains(name.substr(0, name.size() - kBase.size()) + ".lora_A.weight");
  });
}

// Adapters beside a tower for pictures are named as its folder is: "base_model.model.model.language_model.layers.0…".
void use_own_names(WeightsFolder& folder) {
  decltype(folder.tensors) own;
  for (auto& [name, tensor] : folder.tensors) {
    const bool is_peft = name.starts_with(kPrefix);
    own[is_peft ? std::string(kPrefix) + own_name(name.substr(kPrefix.size())) : name] = std::move(tensor);
  }
  folder.tensors = std::move(own);
  leave_out_base(folder);
}

Result<WeightsFolder> read_tensors(const std::string& directory) {
  const std::string path = (fs::path(directory) / kTensorsFile).string();
  Result<SafetensorsHeader> header = read_safetensors_header(path);
  if (!header.ok()) return header.diagnostics;
  WeightsFolder folder;
  folder.plan.directory = directory;
  folder.plan.files = {{std::string(kTensorsFile), header->file_bytes, header->sha256}};
  for (auto& [name, entry] : header->tensors) folder.tensors[name] = {0, std::move(entry)};
  use_own_names(folder);
  return folder;
}

// "": each module has both halves, of that rank and of a type that is read, and there is nothing else.
std::string tensors_problem(const WeightsFolder& folder, int64_t rank) {
  for (const auto& [name, tensor] : folder.tensors) {
    if (module_of_tensor(name).empty()) return fmt::format("'{}' is no half of an adapter", name);
    std::string other = name;
    const size_t at = other.rfind(".lora_") + 6;
    other[at] = other[at] == 'A' ? 'B' : 'A';
    if (!folder.tensors.contains(other)) return fmt::format("'{}' is there, '{}' is not", name, other);
    const std::vector<int64_t>& shape = tensor.entry.shape;
    StoredType type = StoredType::kF32;
    if (!stored_type_of(tensor.entry.dtype, type))
      return fmt::format("'{}' is {}, expected F32, BF16 or F16", name, tensor.entry.dtype);
    const size_t low = name[name.rfind(".lora_") + 6] == 'A' ? 0 : 1;
    if (shape.size() != 2 || shape[low] != rank) return fmt::format("'{}' is {}, expected rank {}", name, shape, rank);
  }
  return folder.tensors.empty() ? "no tensors" : "";
}

}  // namespace

Result<AdapterFolder> read_adapter_folder(const std::string& directory) {
  const std::string path = (fs::path(directory) / kAdapterConfig).string();
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  const Json config = json_from_text(*text);
  const bool is_lora = config.is_object() && config.contains("peft_type") && config["peft_type"] == "LORA";
  if (!is_lora || !config.contains("r") || !config["r"].is_number_integer())
    return bad_adapter(path, fmt::format("'{}' describes no LoRA adapters: expected peft_type LORA and a rank r", path));
  if (const std::string what = refused_by(config); !what.empty())
    return bad_adapter(path, fmt::format("'{}' has {}, which the bundled trainer has not", path, what),
                       "save the adapters without it, or merge them into the model with PEFT first");
  AdapterFolder folder;
  folder.rank = config["r"].get<int64_t>();
  folder.alpha = config.contains("lora_alpha") && config["lora_alpha"].is_number() ? config["lora_alpha"].get<double>() : 8;
  folder.rslora = config.contains("use_rslora") && config["use_rslora"] == true;
  Result<WeightsFolder> tensors = read_tensors(directory);
  if (!tensors.ok()) return tensors.diagnostics;
  if (const std::string problem = tensors_problem(*tensors, folder.rank); !problem.empty())
    return bad_adapter(directory, fmt::format("the tensors of '{}' are not those of its configuration: {}", directory, problem));
  std::set<std::string> modules;
  for (const auto& [name, tensor] : tensors->tensors) modules.insert(module_of_tensor(name));
  folder.targets = targets_of(config, modules);
  folder.weights = std::move(*tensors);
  Result<AdapterFolder> out = std::move(folder);
  if (const auto dropout = config.find("lora_dropout"); dropout != config.end() && dropout->is_number() && *dropout > 0)
    out.diagnostics.push_back(warning(code::kWeights, {path},
                                      fmt::format("these adapters were trained with lora_dropout {}, and go on without: the bundled "
                                                  "trainer has no dropout",
                                                  dropout->dump())));
  return out;
}

Result<WeightsFolder> read_planned_adapter(const WeightsPlan& plan, const std::string& directory) {
  Result<WeightsFolder> folder = read_planned_weights(plan, directory);
  if (folder.ok()) use_own_names(*folder);
  return folder;
}

}  // namespace distsetup
