#include "cli/settings/run_layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/names.h"
#include "base/value_yaml.h"

namespace distsetup {
namespace {

Result<Spec> recipe(const std::string& name, const Presets& presets, const Location& at) {
  std::vector<std::string> known;
  for (const PresetFile& file : presets.files) {
    if (file.folder != "recipes") continue;
    known.push_back(file.id);
    if (!same_name(file.id, name)) continue;
    std::string text(file.text);
    if (!file.is_embedded) {
      const Result<std::string> read = read_file(file.path);
      if (!read.ok()) return read.diagnostics;
      text = *read;
    }
    const Result<Value> value = parse_yaml(text, file.path);
    if (!value.ok()) return value.diagnostics;
    for (const char* key : {"use", "stages"}) {
      if (const Value* inner = value->find(key))
        return error(code::kUnknownKey, inner->location, fmt::format("a recipe has no '{}' of its own", key),
                     "name both recipes in the run file");
    }
    return spec_from_value(*value);
  }
  return error(code::kUnknownValue, at, fmt::format("no recipe '{}'", name), suggest(name, known));
}

// A run file without the keys that are about layers.
Value without(const Value& map, const std::vector<std::string>& keys) {
  Value out = map;
  out.entries.clear();
  out.key_locations.clear();
  for (size_t i = 0; i < map.entries.size(); ++i) {
    if (std::find(keys.begin(), keys.end(), map.entries[i].first) != keys.end()) continue;
    out.entries.push_back(map.entries[i]);
    if (i < map.key_locations.size()) out.key_locations.push_back(map.key_locations[i]);
  }
  return out;
}

Result<Spec> stage_spec(const Value& run_file, const std::string& stage) {
  const Value* stages = run_file.find("stages");
  std::vector<std::string> known;
  Diagnostics diagnostics;
  Spec chosen;
  if (stages != nullptr && stages->kind != Value::Kind::kMap)
    return error(code::kWrongType, stages->location, "stages: expected a map from names to parts of a run file");
  bool is_there = false;
  for (const auto& [name, part] : stages == nullptr ? std::vector<Value::Entry>{} : stages->entries) {
    known.push_back(name);
    if (part.kind != Value::Kind::kMap) {
      diagnostics.push_back(error(code::kWrongType, part.location, fmt::format("stage '{}': expected a part of a run file", name)));
      continue;
    }
    Value whole = without(part, {"version"});
    Value version;
    version.kind = Value::Kind::kScalar;
    version.text = "1";
    whole.entries.push_back({"version", version});
    whole.key_locations.push_back(part.location);
    Result<Spec> spec = spec_from_value(whole);  // every stage is checked, not only the one that runs
    append(diagnostics, spec.diagnostics);
    if (!same_name(name, stage) || !spec.value) continue;
    chosen = std::move(*spec);
    is_there = true;
  }
  if (!stage.empty() && !is_there && !has_error(diagnostics)) {
    diagnostics.push_back(error(code::kUnknownValue, stages == nullptr ? Location{"command line", 0, 0} : stages->location,
                                known.empty() ? fmt::format("'--stage {}' is given, and the run file has no stages", stage)
                                              : fmt::format("no stage '{}'", stage),
                                known.empty() ? "add a section: stages" : suggest(stage, known)));
  }
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(chosen), std::move(diagnostics)};
}

}  // namespace

Result<Spec> spec_of_recipes(const std::vector<std::string>& uses, const Presets& presets, const Location& at) {
  Spec spec;
  Diagnostics diagnostics;
  for (const std::string& name : uses) {
    const Result<Spec> one = recipe(name, presets, at);
    append(diagnostics, one.diagnostics);
    if (one.value) spec = merge(spec, *one.value);
  }
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(spec), std::move(diagnostics)};
}

Result<Spec> spec_of_layers(const Value& run_file, const std::vector<std::string>& uses, const std::string& stage,
                            const Presets& presets) {
  Diagnostics diagnostics;
  std::vector<std::string> names;
  Location at = run_file.location;
  if (const Value* use = run_file.find("use")) {
    at = use->location;
    if (use->kind == Value::Kind::kScalar) names.push_back(use->text);
    for (const Value& item : use->items) names.push_back(item.text);
    if (names.empty())
      diagnostics.push_back(error(code::kWrongType, use->location, "use: expected the name of a recipe, or a list of them"));
  }
  Spec spec;
  const auto add = [&](const Result<Spec>& layer) {
    append(diagnostics, layer.diagnostics);
    if (layer.value) spec = merge(spec, *layer.value);
  };
  add(spec_of_recipes(names, presets, at));
  add(spec_of_recipes(uses, presets, {"command line", 0, 0}));
  add(spec_from_value(without(run_file, {"use", "stages"})));
  add(stage_spec(run_file, stage));
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(spec), std::move(diagnostics)};
}

Diagnostics set_by_path(Spec& spec, const std::string& assignment, const Location& at) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == assignment.size())
    return {error(code::kMissingArgument, at, fmt::format("'--set {}': expected key.path=value", assignment),
                  "write --set train.steps=50")};
  const std::string name = assignment.substr(0, equals);
  const SpecKey* key = find_spec_key(name);
  if (key == nullptr) key = find_spec_flag(name);
  if (key == nullptr) {
    std::vector<std::string> known;
    for (const SpecKey& one : spec_keys()) known.emplace_back(one.path);
    for (const std::string& flag : spec_flag_names()) known.push_back(flag.substr(2));
    return {error(code::kUnknownKey, at, fmt::format("'--set {}': no key '{}'", assignment, name), suggest(name, known))};
  }
  return set(spec, key->path, assignment.substr(equals + 1), at);
}

}  // namespace distsetup
