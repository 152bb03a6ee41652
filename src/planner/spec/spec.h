// Spec: what the user wrote. It holds values with their locations, no defaults and no lookups: those are resolve()'s. Which settings
// there are is in spec_table.h.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/diagnostic.h"
#include "base/value.h"
#include "plan/schedule_text.h"

namespace distsetup {

struct Setting {
  std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<std::string>> value;  // monostate = auto
  std::string text;                                                                                  // as written
  Location at;
  bool is_auto() const { return value.index() == 0; }
};

struct Spec {
  std::map<std::string, Setting, std::less<>> settings;  // by path
  std::optional<Value> model;                            // an inline geometry: the map under `model:`

  // nullptr: not given. `auto` counts as given, see is_auto().
  const Setting* find(std::string_view path) const;
  // Empty when not given or `auto`.
  std::optional<int64_t> integer(std::string_view path) const;  // counts, bytes, seconds
  std::optional<double> number(std::string_view path) const;
  std::optional<bool> boolean(std::string_view path) const;
  std::optional<std::string> text(std::string_view path) const;  // text and enums (canonical value)
  std::optional<std::vector<std::string>> list(std::string_view path) const;
  Location at(std::string_view path) const;
};

// run.yaml, version 1. All mistakes together.
Result<Spec> spec_from_value(const Value& value);
// One setting, for flags, environment and `set`. `text` is the user's spelling; list values are comma-separated (or set twice:
// appended when `at` is the command line).
Diagnostics set(Spec& spec, std::string_view path, std::string_view text, const Location& at);
// By flag spelling: also those that set two things ("--gpus 8xH100-80GB"). nullopt text: the flag stood alone.
Diagnostics set_flag(Spec& spec, std::string_view flag, std::optional<std::string_view> text, const Location& at);
// `over` wins, setting by setting; a setting that excludes another (global_batch and global_batch_tokens) removes it from `base`.
Spec merge(const Spec& base, const Spec& over);

}  // namespace distsetup
