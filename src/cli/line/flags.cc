// Look-ups in the flag table and the reading of command-only values. The tables themselves are beside the commands.
#include "cli/line/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

template <class Number>
Result<Number> parse_number(std::string_view name, const std::string& text, std::string_view expected) {
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure == std::errc() && end == text.data() + text.size()) return number;
  return error(code::kWrongType, command_line(), fmt::format("'--{}' is '{}', expected {}", name, text, expected));
}

}  // namespace

std::optional<std::string> Arguments::find(std::string_view name) const {
  const auto it = values.find(std::string(name));
  if (it == values.end()) return std::nullopt;
  return it->second;
}

Location command_line() { return {"command line"}; }

const std::vector<Flag>& common_flags() {
  static const std::vector<Flag> kFlags = {
      {"help", {}, FlagKind::kSwitch, "", "this text; anywhere on the line", 'h'},
      {"json", {}, FlagKind::kSwitch, "", "the result as JSON on standard output, also when something fails", 0},
      {"quiet", {}, FlagKind::kSwitch, "", "warnings and errors only on standard error", 'q'},
      {"color", {"colour"}, FlagKind::kValue, "WHEN", "auto, always or never; auto: on a terminal", 0, {"auto", "always", "never"}},
  };
  return kFlags;
}

bool takes_key(const Command& command, const SpecKey& key) {
  return std::any_of(command.run_keys.begin(), command.run_keys.end(), [&key](const std::string& prefix) {
    const bool below = key.path.size() > prefix.size() && key.path[prefix.size()] == '.';
    return prefix.empty() || (key.path.substr(0, prefix.size()) == prefix && (below || key.path == prefix));
  });
}

FlagMatch find_flag(const Command& command, std::string_view spelling) {
  for (const std::vector<Flag>* flags : {&command.flags, &common_flags()}) {
    for (const Flag& flag : *flags) {
      bool named = same_name(flag.name, spelling);
      for (const std::string& alias : flag.aliases) named = named || same_name(alias, spelling);
      if (named) return {&flag, nullptr, flag.name, flag.kind == FlagKind::kSwitch};
    }
  }
  for (const SpecKey& key : spec_keys()) {
    if (!takes_key(command, key)) continue;
    for (const SettingFlag& flag : key.flags) {
      if (same_name(flag.name, spelling)) return {nullptr, &key, std::string(flag.name), !flag.bare.empty()};
    }
  }
  return {};
}

std::vector<std::string> flag_spellings(const Command& command) {
  std::vector<std::string> out;
  for (const std::vector<Flag>* flags : {&command.flags, &common_flags()}) {
    for (const Flag& flag : *flags) {
      out.push_back("--" + flag.name);
      for (const std::string& alias : flag.aliases) out.push_back("--" + alias);
    }
  }
  for (const SpecKey& key : spec_keys()) {
    if (!takes_key(command, key)) continue;
    for (const SettingFlag& flag : key.flags) out.push_back(fmt::format("--{}", flag.name));
  }
  return out;
}

Diagnostics refuse_idle(const Arguments& arguments, const std::vector<std::string>& names, std::string_view only) {
  Diagnostics diagnostics;
  for (const std::string& name : names) {
    if (!arguments.has(name)) continue;
    diagnostics.push_back(
        error(code::kConflict, command_line(), fmt::format("'--{}' acts only {}", name, only), fmt::format("leave --{} away", name)));
  }
  return diagnostics;
}

Result<int64_t> int_flag(const Arguments& arguments, std::string_view name, int64_t absent, int64_t min, int64_t max) {
  const std::optional<std::string> text = arguments.find(name);
  if (!text) return absent;
  Result<int64_t> number = parse_number<int64_t>(name, *text, "a whole number");
  if (number.ok() && (*number < min || *number > max)) {
    return error(code::kOutOfRange, command_line(), fmt::format("'--{}' is {}, expected {} to {}", name, *number, min, max));
  }
  return number;
}

Result<double> double_flag(const Arguments& arguments, std::string_view name, double absent) {
  const std::optional<std::string> text = arguments.find(name);
  if (!text) return absent;
  Result<double> number = parse_number<double>(name, *text, "a number");
  if (number.ok() && !(std::isfinite(*number) && *number >= 0)) {
    return error(code::kOutOfRange, command_line(), fmt::format("'--{}' is '{}', expected a number from 0 on", name, *text));
  }
  return number;
}

Result<std::string> choice_flag(const Arguments& arguments, std::string_view name, std::string_view absent,
                                const std::vector<std::string>& allowed) {
  const std::optional<std::string> text = arguments.find(name);
  if (!text) return std::string(absent);
  for (const std::string& one : allowed) {
    if (same_name(one, *text)) return one;
  }
  std::string list;
  for (const std::string& one : allowed) list += (list.empty() ? "" : ", ") + one;
  return error(code::kUnknownValue, command_line(), fmt::format("'--{}' is '{}', expected one of {}", name, *text, list),
               suggest(*text, allowed));
}

}  // namespace distsetup
