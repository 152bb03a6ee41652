#include "cli/settings/varied.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/names.h"
#include "base/text.h"
#include "base/value_yaml.h"
#include "planner/spec/spec_lookup.h"

namespace distsetup {
namespace {

constexpr const char* kGrid = "hyperparam_search_config";
constexpr const char* kExample = "--over sequence-length=4096,8192,16384";

// By the key's path or a flag's name.
Result<VariedSetting> setting_called(const std::string& name, std::vector<std::string> values, const Location& at) {
  const SpecKey* key = find_spec_key(name);
  if (key == nullptr) key = find_spec_flag(name);
  if (key != nullptr) return VariedSetting{std::string(key->path), name, std::move(values)};
  std::vector<std::string> known;
  for (const SpecKey& one : spec_keys()) known.insert(known.end(), {std::string(one.path), std::string(one.flags.front().name)});
  return error(code::kUnknownKey, at, fmt::format("no setting is called '{}'", name), suggest(name, known));
}

Result<VariedSetting> parse_varied(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 >= text.size())
    return error(code::kMissingArgument, command_line(), fmt::format("'{}' is not KEY=VALUE,VALUE", text), kExample);
  return setting_called(text.substr(0, equals), split_words(text.substr(equals + 1), ','), command_line());
}

// {"learning_rate": [1e-5, 5e-5], "beta": [0.1, 0.3]}
Result<std::vector<VariedSetting>> settings_of_grid(const Value& grid) {
  std::vector<VariedSetting> settings;
  Diagnostics said;
  for (const auto& [name, list] : grid.entries) {
    std::vector<std::string> values;
    for (const Value& item : list.items)
      if (item.kind == Value::Kind::kScalar) values.push_back(item.text);
    if (list.kind != Value::Kind::kList || values.empty() || values.size() != list.items.size()) {
      said.push_back(error(code::kWrongType, list.location, fmt::format("{}.{} is no list of values", kGrid, name),
                           fmt::format("{{\"{}\": {{\"learning_rate\": [1e-5, 5e-5]}}}}", kGrid)));
      continue;
    }
    Result<VariedSetting> setting = setting_called(name, std::move(values), list.location);
    append(said, setting.diagnostics);
    if (setting.ok()) settings.push_back(std::move(*setting));
  }
  if (has_error(said)) return said;
  return settings;
}

// The grid that a training service's request has, among the files of the line.
Result<std::vector<VariedSetting>> settings_of_requests(const Arguments& arguments) {
  std::vector<std::string> files = split_words(arguments.text("from"), '\n');
  files.insert(files.end(), arguments.positionals.begin(), arguments.positionals.end());
  for (const std::string& file : files) {
    const Result<std::string> text = read_file(file);
    if (!text.ok()) return text.diagnostics;
    const Result<Value> value = parse_yaml(*text, file);  // JSON is YAML
    const Value* const grid = value.ok() ? value->find(kGrid) : nullptr;
    if (grid != nullptr && grid->kind == Value::Kind::kMap && !grid->entries.empty()) return settings_of_grid(*grid);
  }
  return error(code::kMissingArgument, command_line(), "no --over: nothing is varied", kExample);
}

Result<std::vector<VariedSetting>> settings_of_line(const Arguments& arguments) {
  std::vector<VariedSetting> settings;
  for (const std::string& one : split_words(arguments.text("over"), '\n')) {
    Result<VariedSetting> varied = parse_varied(one);
    if (!varied.ok()) return varied.diagnostics;
    settings.push_back(std::move(*varied));
  }
  return settings;
}

}  // namespace

Result<std::vector<VariedSetting>> read_varied(const Arguments& arguments, size_t most) {
  Result<std::vector<VariedSetting>> read = arguments.has("over") ? settings_of_line(arguments) : settings_of_requests(arguments);
  if (!read.ok()) return read.diagnostics;
  std::vector<VariedSetting> settings = std::move(*read);
  if (settings.size() > most)
    return error(code::kOutOfRange, command_line(), fmt::format("{} settings are varied, expected at most {}", settings.size(), most));
  return settings;
}

std::vector<Combination> combinations(const std::vector<VariedSetting>& settings) {
  std::vector<Combination> all = {{}};
  for (const VariedSetting& setting : settings) {
    std::vector<Combination> longer;
    for (const Combination& one : all) {
      for (const std::string& value : setting.values) {
        longer.push_back(one);
        longer.back().emplace_back(setting.path, value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string label_of(const Combination& one) {
  std::string text;
  for (const auto& entry : one) text += (text.empty() ? "" : " × ") + entry.second;
  return text;
}

std::string heading_of(const std::vector<VariedSetting>& settings) {
  std::string text;
  for (const VariedSetting& setting : settings) text += (text.empty() ? "" : " × ") + setting.name;
  return text;
}

}  // namespace distsetup
