#include "planner/resolve/read_inputs.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/value_json.h"
#include "base/value_yaml.h"
#include "data/prepared_set.h"
#include "data/tokenizer_file.h"
#include "model/hf_config.h"
#include "planner/resolve/data_scan.h"
#include "planner/resolve/named_model.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"
#include "weights/checkpoint_folder.h"
#include "weights/hub_cache.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

bool wants_weights(const Spec& spec) {
  const auto init = spec.text("train.init");
  return init.has_value() ? *init == kWeightsInit : spec.find("model.weights") != nullptr;
}

// The directory that a setting names; of a model of the hub that is no directory, where it was downloaded to.
Result<fs::path> directory_of_setting(const Spec& spec, std::string_view setting, const std::string& name, const std::string& root) {
  std::error_code failure;
  const fs::path path = (folder_of_setting(spec, setting, root) / name).lexically_normal();
  if (fs::exists(path, failure) || !is_hub_id(name)) return path;
  const Result<std::string> found = find_in_hub_cache(name, spec.at(setting));
  if (!found.ok()) return found.diagnostics;
  return fs::path(*found);
}

// A run or a checkpoint of the bundled trainer, in the place of published weights.
std::optional<Diagnostic> own_run(const std::string& path, const std::string& name, const Location& at) {
  if (!committed_checkpoint(path).ok()) return std::nullopt;
  return error(code::kWeights, at, fmt::format("'{}' is a run of the bundled trainer, expected published weights", name),
               fmt::format("write them first: distsetup checkpoint export {} --output WEIGHTS, then name that folder", name));
}

// What to give for a folder without config.json: that of an adapter names the model that it belongs to.
std::string instead_of(const fs::path& folder, const std::string& name) {
  const Result<std::string> text = read_file((folder / "adapter_config.json").string());
  const Result<Value> adapter = text.ok() ? parse_json(*text, name) : Result<Value>(text.diagnostics);
  if (!adapter.ok()) return "give a directory that has one, or a preset's name";
  const Value* base = adapter->find("base_model_name_or_path");
  return fmt::format("it holds an adapter: --model {} --finetune lora --adapter-from {}",
                     base != nullptr && base->kind == Value::Kind::kScalar ? base->text : "ITS-BASE", name);
}

void read_model(const Spec& spec, const Presets& presets, const std::string& root, Inputs& inputs, Diagnostics& said) {
  const auto model = spec.text("model");
  if (!model.has_value()) return;
  std::error_code failure;
  fs::path path = (folder_of_setting(spec, "model", root) / *model).lexically_normal();
  const std::string downloaded = fs::exists(path, failure) ? "" : downloaded_model(presets, *model, wants_weights(spec));
  const bool is_of_hub = !downloaded.empty();
  if (is_of_hub) path = downloaded;
  const fs::path config = fs::is_directory(path, failure) ? path / "config.json" : path;
  if (config.filename() != "config.json" || !fs::is_regular_file(config, failure)) {
    if (std::optional<Diagnostic> own =
            fs::is_directory(path, failure) ? own_run(path.string(), *model, spec.at("model")) : std::nullopt)
      said.push_back(std::move(*own));
    else if (fs::path(*model).is_absolute() || model->starts_with(".") || fs::is_directory(path, failure))
      said.push_back(error(code::kUnreadableFile, spec.at("model"),
                           (fs::exists(path, failure) ? "no config.json in '" : "there is no folder '") + *model + "'",
                           is_of_hub ? fmt::format("download it: hf download {} config.json", *model) : instead_of(path, *model)));
    return;
  }
  Result<std::string> text = read_file(config.string());
  append(said, text.diagnostics);
  if (!text.ok()) return;
  inputs.model_text = *text;
  const Result<Value> value = parse_hf_config(*text, config.string());
  append(said, value.diagnostics);
  if (!value.ok()) return;
  const fs::path folder = fs::absolute(config, failure).lexically_normal().parent_path();
  Result<Geometry> geometry = geometry_from_hf_config(presets, *value, folder.filename().string(), folder.string());
  append(said, geometry.diagnostics);
  if (geometry.ok() && is_of_hub) name_by_hub_id(*model, *geometry);
  if (geometry.ok()) inputs.model = std::move(*geometry);
}

// A folder that has config.json, or that file itself.
fs::path without_config(const fs::path& path) { return path.filename() == "config.json" ? path.parent_path() : path; }

void read_weights(const Spec& spec, const Presets& presets, const std::string& root, Inputs& inputs, Diagnostics& said) {
  const auto weights = spec.text("model.weights"), model = spec.text("model");
  const std::string_view setting = weights.has_value() ? "model.weights" : "model";
  const std::optional<std::string>& name = weights.has_value() ? weights : model;
  if (!wants_weights(spec)) {
    if (weights.has_value())
      said.push_back(error(code::kConflict, spec.at("model.weights"), "weights are given, and init is random: they would not be read",
                           "leave one of them out"));
    const fs::path folder = name.has_value() ? without_config(folder_of_setting(spec, setting, root) / *name) : fs::path();
    if (!name.has_value() || !has_weights(folder.string())) return;
    inputs.unused_weights = *name;
    const std::string method = spec.text("train.method").value_or("pretrain");
    const bool tunes = (method == "sft" || method == kDpo) && !spec.text("train.init").has_value();
    if (!tunes) return;
    inputs.unused_weights.clear();
  }
  if (!name.has_value()) {
    said.push_back(error(code::kMissingKey, spec.at("train.init"), "init is weights, and nothing says which",
                         "--weights FOLDER, or give the model as a folder that has them"));
    return;
  }
  const Result<fs::path> path = directory_of_setting(spec, setting, *name, root);
  append(said, path.diagnostics);
  if (!path.ok()) return;
  std::error_code failure;
  const bool is_preset = !weights.has_value() && !fs::exists(*path, failure);
  if (is_preset && !find_model(presets, *name, spec.at("model")).ok()) return;  // which is said when it is resolved
  if (is_preset) {
    said.push_back(error(code::kMissingKey, spec.at("train.init"),
                         fmt::format("init is weights, and '{}' is the description of a model, without weights", *name),
                         "--weights FOLDER, with the model's safetensors"));
    return;
  }
  if (std::optional<Diagnostic> own = own_run(path->string(), *name, spec.at(setting))) {
    said.push_back(std::move(*own));
    return;
  }
  Result<WeightsFolder> folder = read_weights_folder(without_config(*path).string());
  for (Diagnostic& d : folder.diagnostics) d.location = spec.at(setting);
  append(said, folder.diagnostics);
  if (folder.ok()) inputs.weights = std::move(*folder);
}

void read_own_tokenizer(Inputs& inputs) {
  inputs.own_tokenizer = tokenizer_file_in(inputs.weights->plan.directory);
  if (inputs.own_tokenizer.empty()) return;
  Result<std::string> digest = tokenizer_digest(inputs.own_tokenizer);
  if (digest.ok()) inputs.own_tokenizer_digest = std::move(*digest);
}

void read_adapter(const Spec& spec, const std::string& root, Inputs& inputs, Diagnostics& said) {
  const auto from = spec.text("adapter.from");
  if (!from.has_value()) return;
  std::error_code failure;
  const fs::path path = fs::absolute((folder_of_setting(spec, "adapter.from", root) / *from), failure).lexically_normal();
  Result<AdapterFolder> folder = read_adapter_folder(path.string());
  for (Diagnostic& d : folder.diagnostics) d.location = spec.at("adapter.from");
  append(said, folder.diagnostics);
  if (folder.ok()) inputs.adapter = std::move(*folder);
}

void read_machine(const Spec& spec, const std::string& root, Inputs& inputs, Diagnostics& said) {
  const auto machine = spec.text("hardware.machine");
  if (!machine.has_value() || fs::path(*machine).extension() != ".yaml") return;
  const std::string path = (folder_of_setting(spec, "hardware.machine", root) / *machine).lexically_normal().string();
  Result<std::string> text = read_file(path);
  append(said, text.diagnostics);
  if (!text.ok()) return;
  inputs.machine_text = *text;
  const Result<Value> value = parse_yaml(*text, path);
  append(said, value.diagnostics);
  if (!value.ok()) return;
  Result<Machine> read = machine_from_value(*value, fs::path(path).stem().string());
  append(said, read.diagnostics);
  if (read.ok()) inputs.machine = std::move(*read);
}

void read_data(const Spec& spec, const std::string& root, Inputs& inputs, Diagnostics& said) {
  const auto paths = spec.list("data.paths");
  if (!paths.has_value() || paths->empty()) return;
  Result<DataPlan> data = scan_data(*paths, folder_of_setting(spec, "data.paths", root).string(), held_out_every(spec));
  for (Diagnostic& d : data.diagnostics)
    if (d.location.file.empty()) d.location = spec.at("data.paths");
  append(said, data.diagnostics);
  if (!data.ok()) return;
  inputs.data = std::move(*data.value);
  if (inputs.data->tokenizer != kPreparedTokens) return;
  const fs::path description = fs::path(inputs.data->root) / inputs.data->files.front().path;
  const std::string folder = description.parent_path().string();
  const Result<SetDescription> set = read_set_description(folder);
  append(said, set.diagnostics);
  if (!set.ok()) return;
  inputs.data_vocabulary = set->vocabulary_size;
  inputs.data_holds_pairs = set->holds_pairs;
  inputs.data_tokenizer_digest = set->tokenizer_digest;
  if (set->longest - 1 > spec.integer("train.sequence_length").value_or(0)) {
    Result<PreparedSplit> split = PreparedSplit::open(folder, SetSplit::kTraining);
    append(said, split.diagnostics);
    if (split.ok()) inputs.long_samples = std::move(*split);
  }
  if (!spec.number("train.epochs").has_value()) return;  // nothing else needs every sample
  Result<SetLengths> samples = read_set_lengths(folder);
  append(said, samples.diagnostics);
  if (samples.ok()) inputs.samples = std::move(*samples);
}

}  // namespace

int64_t held_out_every(const Spec& spec) {
  return spec.integer("data.held_out").value_or(std::stoll(std::string(find_spec_key("data.held_out")->fallback)));
}

fs::path folder_of_setting(const Spec& spec, std::string_view setting, const std::string& root) {
  const Location at = spec.at(setting);
  return at.line > 0 ? fs::path(root) / fs::path(at.file).parent_path() : fs::path(root);
}

std::string folder_of_model(const Spec& spec, const std::string& root) {
  for (const std::string_view setting : {"model.weights", "model"}) {
    const auto name = spec.text(setting);
    if (!name.has_value()) continue;
    const Result<fs::path> path = directory_of_setting(spec, setting, *name, root);
    std::error_code failure;
    if (path.ok() && fs::exists(*path, failure)) return without_config(*path).string();
  }
  return "";
}

Result<Inputs> read_inputs(const Spec& spec, const Presets& presets, const std::string& root) {
  Inputs inputs;
  Diagnostics said;
  read_model(spec, presets, root, inputs, said);
  read_weights(spec, presets, root, inputs, said);
  if (inputs.weights.has_value()) read_own_tokenizer(inputs);
  read_adapter(spec, root, inputs, said);
  read_machine(spec, root, inputs, said);
  read_data(spec, root, inputs, said);
  if (has_error(said)) return said;
  for (const Diagnostic& d : said) inputs.notes.push_back(d);
  return {std::move(inputs), std::move(said)};
}

}  // namespace distsetup
