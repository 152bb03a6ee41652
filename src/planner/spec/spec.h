// Spec: what the user wrote, and the one table of settings. Every setting of run.yaml, every flag, every DISTSETUP_* variable and the
// reference text come from spec_keys(); nothing else knows a key, a default or an alias. A Spec holds values with their locations,
// no defaults and no lookups: those are resolve()'s.
// Sources of the aliases: PyTorch FSDP's ShardingStrategy, DeepSpeed's zero_optimization.stage, Hugging Face TrainingArguments and
// Accelerate's FSDP plugin, Lightning's precision strings.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/diagnostic.h"
#include "base/value.h"
#include "plan/schedule_text.h"

namespace distsetup {

enum class SettingType { kBool, kInt, kDouble, kBytes, kDuration, kText, kEnum, kList };
std::string_view name(SettingType type);  // as help prints it: "integer", "size", "duration", ...

// One allowed value of a kEnum. Compared case-insensitively, '-' and '_' the same.
struct SettingChoice {
  std::string_view value;
  std::vector<std::string_view> aliases;
  std::string_view help;
  std::string_view refused;          // not empty: known by name and refused, with this reason
  std::string_view not_native = "";  // not empty: other trainers have it; why the bundled one does not
};

// A flag's spelling without dashes ("sequence-length"); the first of a key is the one that help prints. `bare` is the value that the
// flag alone stands for ("--bf16"); empty: the flag needs a value.
struct SettingFlag {
  std::string_view name;
  std::string_view bare;
};

// A spelling that means two things.
struct AmbiguousChoice {
  std::string_view spelling;
  std::string_view why;
};

struct SpecKey {
  std::string_view path;  // "train.sequence_length"
  SettingType type = SettingType::kText;
  std::vector<SettingFlag> flags;
  std::vector<SettingChoice> choices;
  std::vector<AmbiguousChoice> ambiguous;
  std::string_view fallback;           // default as help prints it: "4096", "auto", "assumed: 8 × H100 SXM 80 GB"
  std::string_view unit;               // "tokens"; empty = none
  std::string_view help;               // one line, lower case
  std::string env;                     // "DISTSETUP_SEQUENCE_LENGTH"
  double minimum = 0, maximum = 1e18;  // numbers
  bool can_be_auto = false;            // `auto` is a legal text: searched, or derived
};

std::span<const SpecKey> spec_keys();
const SpecKey* find_spec_key(std::string_view path);
// By any spelling, with or without leading dashes, '-' and '_' the same.
const SpecKey* find_spec_flag(std::string_view flag);
std::vector<std::string> spec_flag_names();  // every spelling, with dashes: for "did you mean"

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

// The spec as text, one `path = value` a line, sorted: part of the inputs digest.
std::string canonical_text(const Spec& spec);
// The spec as run.yaml text that reads back as the same Spec.
std::string to_yaml(const Spec& spec);

}  // namespace distsetup
