#include "cli/settings/varied.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/text.h"
#include "planner/spec/spec_lookup.h"

namespace distsetup {
namespace {

constexpr const char* kExample = "--over sequence-length=4096,8192,16384";

Result<VariedSetting> parse_varied(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 >= text.size())
    return error(code::kMissingArgument, command_line(), fmt::format("'{}' is not KEY=VALUE,VALUE", text), kExample);
  VariedSetting varied;
  varied.name = text.substr(0, equals);
  const SpecKey* key = find_spec_key(varied.name);
  if (key == nullptr) key = find_spec_flag(varied.name);
  if (key == nullptr) {
    std::vector<std::string> known;
    for (const SpecKey& one : spec_keys()) known.insert(known.end(), {std::string(one.path), std::string(one.flags.front().name)});
    return error(code::kUnknownKey, command_line(), fmt::format("no setting is called '{}'", varied.name),
                 suggest(varied.name, known));
  }
  varied.path = key->path;
  varied.values = split_words(text.substr(equals + 1), ',');
  return varied;
}

}  // namespace

Result<std::vector<VariedSetting>> read_varied(const Arguments& arguments, size_t most) {
  if (!arguments.has("over")) return error(code::kMissingArgument, command_line(), "no --over: nothing is varied", kExample);
  std::vector<VariedSetting> settings;
  for (const std::string& one : split_words(arguments.text("over"), '\n')) {
    Result<VariedSetting> varied = parse_varied(one);
    if (!varied.ok()) return varied.diagnostics;
    settings.push_back(std::move(*varied));
  }
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
