#include "cli/line/unknown_flag.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

std::string_view without_dashes(std::string_view word) { return word.substr(std::min(word.find_first_not_of('-'), word.size())); }

// 'offload' begins 'offload-optimizer', and 'gbs' are the first letters of 'global-batch-size'.
bool is_begin_of(std::string_view word, std::string_view flag) {
  std::string letters;
  for (size_t i = 0; i < flag.size(); ++i)
    if (i == 0 || flag[i - 1] == '-') letters += flag[i];
  return flag.starts_with(std::string(word) + "-") || (word.size() > 2 && letters == word);
}

// What the word says beside a flag: "--lora" is a value of a setting, --finetune lora; "--offload" is how several flags begin. Empty:
// nothing, or too much to print.
std::vector<std::string> meant_otherwise(const Command& command, std::string_view word) {
  constexpr size_t kMostValues = 2, kMostFlags = 6;
  const std::string_view bare = without_dashes(word);
  const auto is_it = [bare](std::string_view one) { return same_name(one, bare); };
  std::vector<std::string> values, other_names, flags;
  for (const SpecKey& key : spec_keys()) {
    if (!takes_key(command, key)) continue;
    for (const SettingChoice& choice : key.choices) {
      const std::string setting = fmt::format("--{} {}", key.flags.front().name, choice.value);
      if (!choice.refused.empty()) continue;
      if (is_it(choice.value)) values.push_back(setting);
      if (std::any_of(choice.aliases.begin(), choice.aliases.end(), is_it)) other_names.push_back(setting);
    }
    const auto is_like = [bare](const SettingFlag& flag) { return is_begin_of(bare, flag.name); };
    const auto flag = std::find_if(key.flags.begin(), key.flags.end(), is_like);
    if (flag != key.flags.end()) flags.push_back(fmt::format("--{}", flag->name));
  }
  for (const Flag& flag : command.flags) {
    if (is_begin_of(bare, flag.name)) flags.push_back("--" + flag.name);
  }
  if (values.empty()) values = std::move(other_names);
  if (!values.empty() && values.size() <= kMostValues) return values;
  return flags.size() <= kMostFlags ? flags : std::vector<std::string>{};
}

// 'bandwidth' ends 'network-bandwidth' and others; of a word that is near to nothing.
std::vector<std::string> ended_by(const std::vector<std::string>& flags, std::string_view word) {
  constexpr size_t kMost = 5;
  const std::string end = "-" + std::string(without_dashes(word));
  std::vector<std::string> found;
  std::copy_if(flags.begin(), flags.end(), std::back_inserter(found), [&end](const std::string& one) { return one.ends_with(end); });
  return found.size() <= kMost ? found : std::vector<std::string>{};
}

// sbatch's own letters for what a flag says here; "" = the word is none of them.
std::string of_sbatch(const Command& command, std::string_view word) {
  constexpr std::pair<char, std::string_view> kLetters[] = {{'N', "nodes"}, {'p', "partition"}, {'A', "account"},
                                                            {'t', "time"},  {'J', "job-name"},  {'q', "qos"}};
  if (!find_flag(command, "partition") || word.size() < 2 || word[0] != '-') return "";
  for (const auto& [letter, flag] : kLetters)
    if (word[1] == letter && (word.size() == 2 || letter == 'N') && find_flag(command, flag)) return fmt::format("--{}", flag);
  return "";
}

// Flags of other tools that no rule finds, and what says the same here.
constexpr std::pair<std::string_view, std::string_view> kOfOtherTools[] = {{"load-in-4bit", "--finetune qlora"},
                                                                           {"use-flash-attn", "--attention flash2"},
                                                                           {"use-flash-attention", "--attention flash2"},
                                                                           {"use-flash-attention-2", "--attention flash2"},
                                                                           {"flash-attn", "--attention flash2"}};

// A flag of another tool whose name and value are one word here, or whose file is read by --from: "--zero 3" is --sharding zero3.
std::string meant_with_value(const Command& command, std::string_view bare, std::string_view value) {
  if (value.empty()) return "";
  const std::string joined = fmt::format("{}{}", bare, value);
  const bool is_file = value.ends_with(".json") || value.ends_with(".yaml") || value.ends_with(".yml");
  for (const SpecKey& key : spec_keys()) {
    if (!takes_key(command, key)) continue;
    for (const SettingChoice& choice : key.choices) {
      if (!choice.refused.empty()) continue;
      if (same_name(choice.value, joined)) return fmt::format("--{} {}", key.flags.front().name, choice.value);
      if (is_file && same_name(choice.value, bare) && find_flag(command, "from")) return fmt::format("--from {}", value);
    }
  }
  return "";
}

// Why a word means two things: as a flag, or as a value of a setting ("--zero"). "" = it does not.
std::string why_ambiguous(const Command& command, std::string_view bare) {
  const SpecKey* model = find_spec_key("model");
  if (model == nullptr || !takes_key(command, *model)) return "";
  if (const std::string_view why = ambiguous_flag(bare); !why.empty()) return std::string(why);
  for (const SpecKey& key : spec_keys())
    for (const SettingChoice& choice : key.choices)
      if (choice.refused.empty() && same_name(choice.value, bare)) return "";
  for (const SpecKey& key : spec_keys()) {
    if (!takes_key(command, key)) continue;
    for (const AmbiguousChoice& one : key.ambiguous)
      if (same_name(one.spelling, bare)) return fmt::format("--{} {}: {}", key.flags.front().name, one.spelling, one.why);
  }
  return "";
}

}  // namespace

Diagnostic unknown_flag(const Command& command, std::string_view word, std::string_view value) {
  // A setting of a run, at a command that takes the plan that was made with it.
  const bool takes_plan = command.positional.find("plan.json") != std::string::npos;
  if (takes_plan && find_spec_flag(word.substr(0, word.find('='))) != nullptr) {
    const std::string help =
        fmt::format("it is a setting of the plan: distsetup plan {} … --output plan.json, then distsetup {} plan.json",
                    word.substr(0, word.find('=')), command.name);
    return error(code::kUnknownFlag, command_line(), fmt::format("unknown flag '{}' of 'distsetup {}'", word, command.name), help);
  }
  std::vector<std::string> meant = meant_otherwise(command, word.substr(0, word.find('=')));
  const std::vector<std::string> known = flag_spellings(command);
  const std::string_view bare = without_dashes(word);
  const auto is_it = [bare](const auto& one) { return same_name(one.first, bare); };
  const auto* of_other = std::find_if(std::begin(kOfOtherTools), std::end(kOfOtherTools), is_it);
  if (of_other != std::end(kOfOtherTools) && find_flag(command, "attention")) meant = {std::string(of_other->second)};
  if (const std::string with_value = meant_with_value(command, bare, value); !with_value.empty()) {
    meant = {with_value};
  } else if (std::string why = why_ambiguous(command, bare); !why.empty()) {
    return error(code::kUnknownFlag, command_line(), fmt::format("unknown flag '{}' of 'distsetup {}'", word, command.name),
                 std::move(why));
  }
  if (const std::string letter = of_sbatch(command, word); !letter.empty()) meant = {letter};
  if (const std::string nearest = nearest_name(word, known); meant.empty())
    meant = nearest.empty() ? ended_by(known, word.substr(0, word.find('='))) : std::vector{nearest};
  const std::string help = meant.empty()
                               ? fmt::format("flags: distsetup {} --help", command.name)
                               : fmt::format("did you mean {}'{}'", meant.size() == 1 ? "" : "one of ", fmt::join(meant, "', '"));
  return error(code::kUnknownFlag, command_line(), fmt::format("unknown flag '{}' of 'distsetup {}'", word, command.name), help);
}

}  // namespace distsetup
