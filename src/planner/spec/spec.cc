// Settings from run.yaml, flags and the environment, as layers of one Spec. What a value means is setting_value.cc's.
#include "planner/spec/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "planner/spec/setting_value.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

constexpr std::string_view kCommandLine = "command line";

// Settings of which only one can hold; the stronger layer's removes the other.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kExclusive = {{
    {"train.warmup_steps", "train.warmup_ratio"},
    {"train.global_batch", "train.global_batch_tokens"},
    {"train.steps", "train.total_tokens"},
    {"train.steps", "train.samples"},
    {"train.steps", "train.epochs"},
    {"train.total_tokens", "train.samples"},
    {"train.total_tokens", "train.epochs"},
    {"hardware.nodes", "hardware.total_gpus"},
}};

// The names below `prefix`, for "did you mean".
std::vector<std::string> names_below(std::string_view prefix) {
  std::vector<std::string> names;
  for (const SpecKey& key : spec_keys()) {
    std::vector<std::string_view> paths = {key.path};
    paths.insert(paths.end(), key.other_paths.begin(), key.other_paths.end());
    for (const std::string_view path : paths) {
      if (!path.starts_with(prefix)) continue;
      const std::string_view rest = path.substr(prefix.size());
      const std::string first(rest.substr(0, rest.find('.')));
      if (std::find(names.begin(), names.end(), first) == names.end()) names.push_back(first);
    }
  }
  return names;
}

// `model:` as a map: a geometry, and `weights` beside it, which is a setting of its own. Alone it names the model too.
void read_inline_model(const Value& map, Spec& spec, Diagnostics& diagnostics) {
  Value geometry = map;
  geometry.entries.clear();
  geometry.key_locations.clear();
  for (size_t i = 0; i < map.entries.size(); ++i) {
    if (map.entries[i].first != "weights") {
      geometry.entries.push_back(map.entries[i]);
      if (i < map.key_locations.size()) geometry.key_locations.push_back(map.key_locations[i]);
      continue;
    }
    Result<Setting> setting = parse_value(*find_spec_key("model.weights"), map.entries[i].second);
    append(diagnostics, setting.diagnostics);
    if (setting.ok()) spec.settings["model.weights"] = std::move(*setting);
  }
  const Setting* weights = spec.find("model.weights");
  const Value* base = geometry.find("base");
  if (weights == nullptr || geometry.entries.size() > 1 || (geometry.entries.size() == 1 && base == nullptr)) {
    spec.model = std::move(geometry);
  } else if (base == nullptr) {
    spec.settings["model"] = *weights;
  } else {
    Result<Setting> setting = parse_value(*find_spec_key("model"), *base);
    append(diagnostics, setting.diagnostics);
    if (setting.ok()) spec.settings["model"] = std::move(*setting);
  }
}

void read_map(const Value& map, const std::string& prefix, Spec& spec, Diagnostics& diagnostics) {
  for (size_t i = 0; i < map.entries.size(); ++i) {
    const std::string& name = map.entries[i].first;
    const Value& value = map.entries[i].second;
    const std::string path = prefix + name;
    const Location at = i < map.key_locations.size() ? map.key_locations[i] : value.location;
    if (prefix.empty() && name == "version") continue;
    if (prefix.empty() && name == "model" && value.kind == Value::Kind::kMap) {
      read_inline_model(value, spec, diagnostics);
      continue;
    }
    if (const SpecKey* key = find_spec_key(path); key != nullptr) {
      Result<Setting> setting = parse_value(*key, value);
      append(diagnostics, setting.diagnostics);
      if (setting.ok()) spec.settings[std::string(key->path)] = std::move(*setting);
      continue;
    }
    const std::vector<std::string> below = names_below(path + ".");
    if (!below.empty() && value.kind == Value::Kind::kMap) {
      read_map(value, path + ".", spec, diagnostics);
      continue;
    }
    if (!below.empty()) {
      diagnostics.push_back(error(code::kWrongType, value.location, fmt::format("{}: found '{}', expected a map", path, value.text),
                                  fmt::format("known: {}", fmt::join(below, ", "))));
      continue;
    }
    std::string help = suggest(name, names_below(prefix));
    if (const SpecKey* alias = find_spec_flag(name); alias != nullptr) help = fmt::format("in a file it is {}", alias->path);
    Diagnostic d = error(code::kUnknownKey, at,
                         fmt::format("unknown key '{}'{}", name, prefix.empty() ? "" : " in " + prefix.substr(0, prefix.size() - 1)),
                         std::move(help));
    d.length = static_cast<int>(name.size());
    diagnostics.push_back(std::move(d));
  }
}

// What a flag's value was called by its key is called by the flag that was typed.
Diagnostics in_words_of(std::string_view flag, std::string_view path, Diagnostics problems) {
  for (Diagnostic& d : problems) {
    if (const size_t at = d.message.find(path); d.location.file == kCommandLine && at != std::string::npos)
      d.message.replace(at, path.size(), fmt::format("--{}", flag));
  }
  return problems;
}

std::string_view without_dashes(std::string_view flag) {
  while (!flag.empty() && flag.front() == '-') flag.remove_prefix(1);
  return flag;
}

}  // namespace

const Setting* Spec::find(std::string_view path) const {
  const auto it = settings.find(path);
  return it == settings.end() ? nullptr : &it->second;
}

std::optional<int64_t> Spec::integer(std::string_view path) const {
  const Setting* setting = find(path);
  if (setting == nullptr || !std::holds_alternative<int64_t>(setting->value)) return std::nullopt;
  return std::get<int64_t>(setting->value);
}

std::optional<double> Spec::number(std::string_view path) const {
  const Setting* setting = find(path);
  if (setting == nullptr || !std::holds_alternative<double>(setting->value)) return std::nullopt;
  return std::get<double>(setting->value);
}

std::optional<bool> Spec::boolean(std::string_view path) const {
  const Setting* setting = find(path);
  if (setting == nullptr || !std::holds_alternative<bool>(setting->value)) return std::nullopt;
  return std::get<bool>(setting->value);
}

std::optional<std::string> Spec::text(std::string_view path) const {
  const Setting* setting = find(path);
  if (setting == nullptr || !std::holds_alternative<std::string>(setting->value)) return std::nullopt;
  return std::get<std::string>(setting->value);
}

std::optional<std::vector<std::string>> Spec::list(std::string_view path) const {
  const Setting* setting = find(path);
  if (setting == nullptr || !std::holds_alternative<std::vector<std::string>>(setting->value)) return std::nullopt;
  return std::get<std::vector<std::string>>(setting->value);
}

Location Spec::at(std::string_view path) const {
  const Setting* setting = find(path);
  return setting == nullptr ? Location{} : setting->at;
}

Result<Spec> spec_from_value(const Value& value) {
  if (value.kind != Value::Kind::kMap) {
    return error(code::kWrongType, value.location, "found no map, expected a run description with `version: 1`",
                 "start with: version: 1");
  }
  Diagnostics diagnostics;
  const Value* version = value.find("version");
  if (version == nullptr) {
    diagnostics.push_back(error(code::kMissingKey, value.location, "no 'version', expected version: 1", "add the line: version: 1"));
  } else if (version->text != "1") {
    diagnostics.push_back(
        error(code::kUnknownVersion, version->location, fmt::format("found version '{}', expected 1", version->text)));
  }
  Spec spec;
  read_map(value, "", spec, diagnostics);
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(spec), std::move(diagnostics)};
}

Diagnostics set(Spec& spec, std::string_view path, std::string_view text, const Location& at) {
  const SpecKey* key = find_spec_key(path);
  CHECK(key != nullptr, "no setting '{}'", path);
  // "--gpus 8xH100-80GB" states a count and a kind; so does "--gpu 8xH100".
  if (key->path == "hardware.gpus_per_node" || key->path == "hardware.gpu") {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    std::string_view rest = text.substr(digits);
    while (rest.starts_with(' ')) rest.remove_prefix(1);
    const size_t sign = rest.starts_with("×") ? std::string_view("×").size()
                        : !rest.empty() && std::string_view("xX*").find(rest[0]) != std::string_view::npos ? 1
                                                                                                           : 0;
    if (digits > 0 && sign > 0 && rest.size() > sign) {
      rest.remove_prefix(sign);
      while (rest.starts_with(' ')) rest.remove_prefix(1);
      Diagnostics problems = set(spec, "hardware.gpus_per_node", text.substr(0, digits), at);
      append(problems, set(spec, "hardware.gpu", rest, at));
      return problems;
    }
  }
  Result<Setting> setting = parse_scalar(*key, scalar_value(std::string(text), at));
  if (!setting.ok()) return setting.diagnostics;
  if (holds_list(key->type) && at.file == kCommandLine) {
    if (const Setting* before = spec.find(key->path); before != nullptr && before->at.file == kCommandLine) {
      auto items = std::get<std::vector<std::string>>(before->value);
      for (std::string& item : std::get<std::vector<std::string>>(setting->value)) items.push_back(std::move(item));
      setting->text = before->text + "," + setting->text;
      setting->value = std::move(items);
    }
  }
  if (key->path == "model") spec.model.reset();
  spec.settings[std::string(key->path)] = std::move(*setting);
  return {};
}

Diagnostics set_flag(Spec& spec, std::string_view flag, std::optional<std::string_view> text, const Location& at) {
  const std::string_view spelling = without_dashes(flag);
  if (const std::string_view why = ambiguous_flag(spelling); !why.empty())
    return {error(code::kAmbiguousSpelling, at, fmt::format("'--{}' means two things", spelling), std::string(why))};
  const SpecKey* key = find_spec_flag(spelling);
  if (key == nullptr)
    return {error(code::kUnknownFlag, at, fmt::format("unknown flag '--{}'", spelling),
                  suggest("--" + std::string(spelling), spec_flag_names()))};
  std::string_view bare;
  for (const SettingFlag& f : key->flags)
    if (same_name(f.name, spelling)) bare = f.bare;
  if (!text.has_value()) {
    if (bare.empty()) return {error(code::kMissingArgument, at, fmt::format("'--{}' needs a value: {}", spelling, name(key->type)))};
    return set(spec, key->path, bare, at);
  }
  // A switch named after its value: "--fp16 true" is fp16, "--fp16 false" says nothing about the type.
  if (!bare.empty() && same_name(bare, spelling)) {
    if (same_name(*text, "true")) return set(spec, key->path, bare, at);
    if (same_name(*text, "false")) return {};
    return {error(code::kWrongType, at, fmt::format("'--{}': found '{}', expected true or false", spelling, *text))};
  }
  return in_words_of(spelling, key->path, set(spec, key->path, *text, at));
}

Spec merge(const Spec& base, const Spec& over) {
  Spec merged = base;
  for (const auto& [one, other] : kExclusive) {
    if (over.find(one) != nullptr && over.find(other) == nullptr) merged.settings.erase(std::string(other));
    if (over.find(other) != nullptr && over.find(one) == nullptr) merged.settings.erase(std::string(one));
  }
  // A machine has its own GPUs, also against a GPU that a weaker layer names.
  if (over.find("hardware.machine") != nullptr && over.find("hardware.gpu") == nullptr) merged.settings.erase("hardware.gpu");
  for (const auto& [path, setting] : over.settings) merged.settings[path] = setting;
  if (over.model.has_value()) {
    merged.model = over.model;
    merged.settings.erase("model");
  } else if (over.find("model") != nullptr) {
    merged.model.reset();
  }
  return merged;
}

}  // namespace distsetup
