// One parser per type of setting, so that a spelling means the same in a file, a flag and the environment.
#include "planner/spec/setting_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/quantity.h"
#include "base/text.h"
#include "planner/spec/data_source.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

Diagnostic mistake(const char* code, const Value& value, std::string message, std::string help = "") {
  Diagnostic d = error(code, value.location, std::move(message), std::move(help));
  d.length = std::max<int>(1, static_cast<int>(value.text.size()) + (value.quoted ? 2 : 0));
  return d;
}

std::string known_values(const SpecKey& key) {
  std::vector<std::string> known;
  for (const SettingChoice& c : key.choices) {
    if (!c.refused.empty()) continue;
    known.push_back(c.value == "every_k" ? "every_k:<k>" : std::string(c.value));
  }
  if (key.can_be_auto) known.push_back("auto");
  return fmt::format("{}", fmt::join(known, ", "));
}

// "zero3" given for a trainer is a value of another setting. "" = of none, or of several.
std::string said_elsewhere(const SpecKey& key, std::string_view text) {
  std::string found;
  for (const SpecKey& other : spec_keys()) {
    if (other.path == key.path || other.flags.empty()) continue;
    const auto is_it = [text](const SettingChoice& c) { return c.refused.empty() && same_name(c.value, text); };
    const auto choice = std::find_if(other.choices.begin(), other.choices.end(), is_it);
    if (choice == other.choices.end()) continue;
    if (!found.empty()) return "";
    found = fmt::format("it is a value of {}: --{} {}", other.path, other.flags.front().name, choice->value);
  }
  return found;
}

Result<std::string> parse_choice(const SpecKey& key, const Value& value) {
  const std::string& text = value.text;
  for (const AmbiguousChoice& a : key.ambiguous) {
    if (same_name(a.spelling, text))
      return mistake(code::kAmbiguousSpelling, value, fmt::format("'{}' means two things for {}", text, key.path), std::string(a.why));
  }
  for (const SettingChoice& c : key.choices) {
    const bool named = same_name(c.value, text) ||
                       std::any_of(c.aliases.begin(), c.aliases.end(), [&](std::string_view a) { return same_name(a, text); });
    if (!named) continue;
    if (c.value == "every_k")
      return mistake(code::kUnknownValue, value, fmt::format("found '{}' for {}, expected every_k:<k> with a number", text, key.path),
                     "write every_k:2");
    if (!c.refused.empty())
      return mistake(code::kUnsupportedFeature, value, fmt::format("{} '{}' is not supported: {}", key.path, text, c.refused),
                     fmt::format("use one of {}", known_values(key)));
    return std::string(c.value);
  }
  const std::string low = lower(text);
  const bool has_every_k =
      std::any_of(key.choices.begin(), key.choices.end(), [](const SettingChoice& c) { return c.value == "every_k"; });
  if (has_every_k && (low.starts_with("every_k:") || low.starts_with("every-k:"))) {
    int64_t k = 0;
    const char* end = low.data() + low.size();
    const auto [stop, failure] = std::from_chars(low.data() + 8, end, k);
    if (failure == std::errc() && stop == end && k >= 1) return fmt::format("every_k:{}", k);
    return mistake(code::kOutOfRange, value, fmt::format("found '{}' for {}, expected every_k:<k> with k at least 1", text, key.path),
                   "write every_k:2");
  }
  std::vector<std::string> spellings;
  for (const SettingChoice& c : key.choices) {
    spellings.emplace_back(c.value);
    spellings.insert(spellings.end(), c.aliases.begin(), c.aliases.end());
  }
  if (key.choices.size() == 1 && as_double(value).ok())  // other tools have such values
    return mistake(code::kUnsupportedFeature, value,
                   fmt::format("{} '{}' is not supported, only {} is", key.path, text, key.choices.front().value),
                   "leave it out; where another tool trains, add it to the file that is written for it");
  std::string help = said_elsewhere(key, text);
  if (const std::string near = nearest_name(text, spellings); help.empty() && !near.empty())
    help = fmt::format("did you mean '{}'", near);
  return mistake(code::kUnknownValue, value, fmt::format("found '{}' for {}, expected one of {}", text, key.path, known_values(key)),
                 std::move(help));
}

// "5%", "0.05".
Result<double> as_share(const Value& value) {
  if (!value.text.ends_with('%')) return as_double(value);
  Value number = value;
  number.text.pop_back();
  number.quoted = false;
  Result<double> percent = as_double(number);
  if (percent.ok()) percent.value = *percent / 100;
  return percent;
}

// A context of "8k" has 8,192 tokens, in every model's name and card; a batch of "4M" has 4,000,000.
std::string spelled_out(const SpecKey& key, const std::string& text) {
  return key.path == "train.sequence_length" && !text.ends_with('i') ? text + "i" : text;
}

template <class T>
Diagnostics check_range(const SpecKey& key, const Value& value, T number) {
  if (static_cast<double>(number) >= key.minimum && static_cast<double>(number) <= key.maximum) return {};
  const bool has_maximum = key.maximum < 1e18;
  return {mistake(code::kOutOfRange, value,
                  has_maximum
                      ? fmt::format("found '{}' for {}, expected from {} to {}", value.text, key.path, key.minimum, key.maximum)
                      : fmt::format("found '{}' for {}, expected at least {}", value.text, key.path, key.minimum))};
}

// "2:4", as torchrun takes it: nodes may come and go while training.
bool is_elastic_range(std::string_view text) {
  const size_t colon = text.find(':');
  return colon != std::string_view::npos && colon > 0 && colon + 1 < text.size() &&
         text.find_first_not_of("0123456789:") == std::string_view::npos && text.find(':', colon + 1) == std::string_view::npos;
}

Diagnostic no_elastic_range(const SpecKey& key, const Value& value) {
  Diagnostic one = mistake(
      code::kWrongType, value,
      fmt::format("{}: '{}' is an elastic range: a plan's sharding and batch are those of one number of nodes", key.path, value.text));
  one.help = "plan with the least of them, where memory is shortest, and with the most; a launch line of your own may say MIN:MAX";
  return one;
}

}  // namespace

Result<Setting> parse_scalar(const SpecKey& key, const Value& value) {
  Setting setting;
  setting.text = value.text;
  setting.at = value.location;
  if (key.can_be_auto && same_name(value.text, "auto")) return setting;
  const auto take = [&](auto result) -> Diagnostics {
    if (!result.ok()) {
      for (Diagnostic& d : result.diagnostics) d.message = fmt::format("{}: {}", key.path, d.message);
      return result.diagnostics;
    }
    setting.value = *result;
    return {};
  };
  Diagnostics problems;
  switch (key.type) {
    case SettingType::kBool: problems = take(as_bool(value)); break;
    case SettingType::kInt:
      if (key.path == "hardware.nodes" && is_elastic_range(value.text)) return no_elastic_range(key, value);
      problems =
          take(key.is_count && is_short_count(value.text) ? parse_count(spelled_out(key, value.text), value.location) : as_int(value));
      if (key.is_count && !problems.empty() && problems.front().help.empty())
        problems.front().help = "write it like 4000000, 4M or 15T";
      if (problems.empty()) problems = check_range(key, value, std::get<int64_t>(setting.value));
      break;
    case SettingType::kDouble:
      problems = take(as_double(value));
      if (problems.empty()) problems = check_range(key, value, std::get<double>(setting.value));
      break;
    case SettingType::kShare:
      problems = take(as_share(value));
      if (problems.empty()) problems = check_range(key, value, std::get<double>(setting.value));
      break;
    case SettingType::kBytes:
      problems = take(parse_bytes(value.text, value.location));
      if (problems.empty()) problems = check_range(key, value, std::get<int64_t>(setting.value));
      break;
    case SettingType::kDuration:
      problems = take(parse_duration_s(value.text, value.location));
      if (problems.empty()) problems = check_range(key, value, std::get<int64_t>(setting.value));
      break;
    case SettingType::kText:
      if (value.text.empty()) {
        problems = {mistake(code::kWrongType, value, fmt::format("{}: found nothing, expected text", key.path))};
      } else {
        setting.value = value.text;
      }
      break;
    case SettingType::kEnum: {
      const Result<std::string> chosen = parse_choice(key, value);
      if (!chosen.ok()) return chosen.diagnostics;
      setting.value = *chosen;
      break;
    }
    case SettingType::kList: setting.value = split_words(value.text, ','); break;
    case SettingType::kSources: return sources_setting(value.text, value.location);
  }
  if (has_error(problems)) return problems;
  return setting;
}

Result<Setting> parse_value(const SpecKey& key, const Value& value) {
  if (key.type == SettingType::kSources) return sources_setting(value);
  if (key.type == SettingType::kList && value.kind == Value::Kind::kList) {
    Setting setting;
    setting.at = value.location;
    std::vector<std::string> items;
    Diagnostics problems;
    for (const Value& item : value.items) {
      Result<std::string> text = as_text(item);
      append(problems, text.diagnostics);
      if (text.ok()) items.push_back(*text);
    }
    if (has_error(problems)) return problems;
    setting.text = fmt::format("{}", fmt::join(items, ","));
    setting.value = std::move(items);
    return setting;
  }
  if (value.kind != Value::Kind::kScalar) {
    const std::string found = value.kind == Value::Kind::kMap ? "a map" : value.kind == Value::Kind::kList ? "a list" : "nothing";
    return error(code::kWrongType, value.location, fmt::format("{}: found {}, expected {}", key.path, found, name(key.type)),
                 value.kind == Value::Kind::kNull ? "leave the key out to use the default" : "");
  }
  const bool is_text = key.type == SettingType::kText || key.type == SettingType::kList;
  const std::string low = lower(value.text);
  const bool is_switch_word = low == "no" || low == "yes" || low == "on" || low == "off" || low == "y" || low == "n";
  if (is_text || (key.type == SettingType::kEnum && is_switch_word && !value.quoted)) {
    const Result<std::string> text = as_text(value);
    if (!text.ok()) {
      Diagnostics problems = text.diagnostics;
      for (Diagnostic& d : problems) {
        d.message = fmt::format("{}: {}", key.path, d.message);
        if (key.type == SettingType::kEnum) d.help = fmt::format("write one of {}", known_values(key));
      }
      return problems;
    }
  }
  return parse_scalar(key, value);
}

}  // namespace distsetup
