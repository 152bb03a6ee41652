#include "planner/resolve/read_inputs.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/value_yaml.h"
#include "model/hf_config.h"
#include "planner/resolve/data_scan.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// What a relative path in a setting starts from: the folder of the file that says it, or `root` for flags and variables.
fs::path base_of(const Spec& spec, std::string_view setting, const std::string& root) {
  const Location at = spec.at(setting);
  return at.line > 0 ? fs::path(root) / fs::path(at.file).parent_path() : fs::path(root);
}

void read_model(const Spec& spec, const Presets& presets, const std::string& root, Inputs& inputs, Diagnostics& said) {
  const auto model = spec.text("model");
  if (!model.has_value()) return;
  std::error_code failure;
  const fs::path path = (base_of(spec, "model", root) / *model).lexically_normal();
  const fs::path config = fs::is_directory(path, failure) ? path / "config.json" : path;
  if (config.filename() != "config.json" || !fs::is_regular_file(config, failure)) {
    if (fs::path(*model).is_absolute() || model->starts_with(".") || fs::is_directory(path, failure))
      said.push_back(error(code::kUnreadableFile, spec.at("model"), fmt::format("no config.json in '{}'", *model),
                           "give a directory that has one, or a preset's name"));
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
  if (geometry.ok()) inputs.model = std::move(*geometry);
}

void read_machine(const Spec& spec, const std::string& root, Inputs& inputs, Diagnostics& said) {
  const auto machine = spec.text("hardware.machine");
  if (!machine.has_value() || fs::path(*machine).extension() != ".yaml") return;
  const std::string path = (base_of(spec, "hardware.machine", root) / *machine).lexically_normal().string();
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
  const SpecKey* key = find_spec_key("data.held_out");
  Result<DataPlan> data = scan_data(*paths, base_of(spec, "data.paths", root).string(),
                                    spec.integer("data.held_out").value_or(std::stoll(std::string(key->fallback))));
  for (Diagnostic& d : data.diagnostics)
    if (d.location.file.empty()) d.location = spec.at("data.paths");
  append(said, data.diagnostics);
  if (data.ok()) inputs.data = std::move(*data.value);
}

}  // namespace

Result<Inputs> read_inputs(const Spec& spec, const Presets& presets, const std::string& root) {
  Inputs inputs;
  Diagnostics said;
  read_model(spec, presets, root, inputs, said);
  read_machine(spec, root, inputs, said);
  read_data(spec, root, inputs, said);
  if (has_error(said)) return said;
  for (const Diagnostic& d : said) inputs.notes.push_back(d);
  return {std::move(inputs), std::move(said)};
}

}  // namespace distsetup
