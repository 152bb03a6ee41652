// The one table of settings. Every setting of run.yaml, every flag, every DISTSETUP_* variable and the reference text come from
// spec_keys(); nothing else knows a key, a default or an alias.
// Sources of the aliases: PyTorch FSDP's ShardingStrategy, DeepSpeed's zero_optimization.stage, Hugging Face TrainingArguments and
// Accelerate's FSDP plugin, Lightning's precision strings.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

// kSources: a list whose items, in a file, may say more than a path (data_source.h).
enum class SettingType { kBool, kInt, kDouble, kShare, kBytes, kDuration, kText, kEnum, kList, kSources };
inline bool holds_list(SettingType type) { return type == SettingType::kList || type == SettingType::kSources; }

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
  std::string_view path;                      // "train.sequence_length"
  std::vector<std::string_view> other_paths;  // that a file may say in its place
  SettingType type = SettingType::kText;
  std::vector<SettingFlag> flags;
  std::vector<SettingChoice> choices;
  std::vector<AmbiguousChoice> ambiguous;
  std::string_view fallback;           // default as help prints it: "4096", "auto", "assumed: 8 × H100 SXM 80 GB"
  std::string_view unit;               // "tokens"; empty = none
  std::string_view help;               // one line, lower case
  std::string env;                     // "DISTSETUP_SEQUENCE_LENGTH"
  double minimum = 0, maximum = 1e18;  // numbers
  bool is_count = false;               // 4M and 15T are legal spellings
  bool can_be_auto = false;            // `auto` is a legal text: searched, or derived
};

std::span<const SpecKey> spec_keys();

}  // namespace distsetup
