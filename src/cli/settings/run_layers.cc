#include "cli/settings/run_layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/names.h"
#include "base/value_yaml.h"
#include "planner/spec/spec_table.h"

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

}  // namespace

Result<Spec> spec_of_stage(const Value* run_file, const std::string& stage) {
  if (run_file == nullptr) return Spec();
  const Value* stages = run_file->find("stages");
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

Result<Spec> spec_of_uses(const Value* run_file, const std::vector<std::string>& uses, const Presets& presets) {
  Spec spec;
  Diagnostics diagnostics;
  if (const Value* use = run_file == nullptr ? nullptr : run_file->find("use")) {
    std::vector<std::string> names;
    if (use->kind == Value::Kind::kScalar) names.push_back(use->text);
    for (const Value& item : use->items) names.push_back(item.text);
    if (names.empty())
      diagnostics.push_back(error(code::kWrongType, use->location, "use: expected the name of a recipe, or a list of them"));
    const Result<Spec> own = spec_of_recipes(names, presets, use->location);
    append(diagnostics, own.diagnostics);
    if (own.value) spec = *own.value;
  }
  const Result<Spec> given = spec_of_recipes(uses, presets, {"command line", 0, 0});
  append(diagnostics, given.diagnostics);
  if (given.value) spec = merge(spec, *given.value);
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(spec), std::move(diagnostics)};
}

Result<Spec> spec_of_run_file(const Value* run_file) {
  if (run_file == nullptr) return Spec();
  return spec_from_value(without(*run_file, {"use", "stages"}));
}

bool is_of_run_file(const Value::Entry& entry) {
  const std::string& key = entry.first;
  return key == "use" || key == "stages" || std::any_of(spec_keys().begin(), spec_keys().end(), [&key](const SpecKey& one) {
           return same_name(one.path.substr(0, one.path.find('.')), key);
         });
}

}  // namespace distsetup
