// Functions that make the rows of the table of settings.
#pragma once
#include <string_view>
#include <utility>
#include <vector>

#include "planner/spec/spec_table.h"

namespace distsetup {

inline SpecKey text_key(std::string_view path, std::vector<SettingFlag> flags, std::string_view fallback, std::string_view help) {
  SpecKey key;
  key.path = path;
  key.flags = std::move(flags);
  key.fallback = fallback;
  key.help = help;
  return key;
}

inline SpecKey also(SpecKey key, std::vector<std::string_view> other_paths) {
  key.other_paths = std::move(other_paths);
  return key;
}

inline SpecKey typed(SettingType type, SpecKey key) {
  key.type = type;
  return key;
}

// Two flags: one for, one against.
inline SpecKey on_off(std::string_view path, std::string_view on, std::string_view off, std::string_view fallback,
                      std::string_view help) {
  return typed(SettingType::kBool, text_key(path, {{on, "true"}, {off, "false"}}, fallback, help));
}

struct SettingRange {
  double minimum, maximum = 1e18;
};

inline SpecKey number(SettingType type, std::string_view path, std::vector<SettingFlag> flags, std::string_view fallback,
                      std::string_view unit, SettingRange range, std::string_view help) {
  SpecKey key = typed(type, text_key(path, std::move(flags), fallback, help));
  key.unit = unit;
  key.is_count = type == SettingType::kInt && (unit == "tokens" || unit == "sequences" || unit == "steps");
  key.minimum = range.minimum;
  key.maximum = range.maximum;
  return key;
}

inline SpecKey searched(SpecKey key) {
  key.can_be_auto = true;
  key.fallback = "auto";
  return key;
}

inline SpecKey choice(std::string_view path, std::vector<SettingFlag> flags, std::vector<SettingChoice> choices,
                      std::string_view fallback, std::string_view help, std::vector<AmbiguousChoice> ambiguous = {}) {
  SpecKey key = typed(SettingType::kEnum, text_key(path, std::move(flags), fallback, help));
  key.choices = std::move(choices);
  key.ambiguous = std::move(ambiguous);
  return key;
}

}  // namespace distsetup
