// Two steps. rewrite() goes over the words once with the flag table in hand: it names unknown flags, folds '_' and '-' and letter
// case, and joins each flag with its value, so that what is left is unambiguous. CLI11 then binds words to flags and positionals and
// counts them. CLI11 alone answers `--modle 7B` with "--model is required", knows one exit code for everything, and takes a negative
// number for a flag.
#include "cli/line/parse.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/names.h"

namespace distsetup {
namespace {

constexpr std::string_view kAlone("\0", 1);  // between the two steps: the flag had no value; no word of a command line has it

bool is_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const bool is_number = word[1] == '.' || (word[1] >= '0' && word[1] <= '9');
  return !is_number;
}

// May `word` be the value of a flag that can also stand alone? Only what the key knows, so that a file name is never swallowed.
bool is_value_of(const SpecKey& key, std::string_view word) {
  if (key.can_be_auto && same_name(word, "auto")) return true;
  if (key.type == SettingType::kBool) return same_name(word, "true") || same_name(word, "false");
  for (const SettingChoice& choice : key.choices) {
    if (same_name(choice.value, word)) return true;
    for (const std::string_view alias : choice.aliases) {
      if (same_name(alias, word)) return true;
    }
  }
  const bool is_number = !word.empty() && word.find_first_not_of("0123456789.e-") == std::string_view::npos;
  return is_number && (key.type == SettingType::kInt || key.type == SettingType::kDouble);
}

Diagnostic unknown_flag(const Command& command, std::string_view word) {
  const std::vector<std::string> known = flag_spellings(command);
  const std::string nearest = nearest_name(word, known);
  const std::string help =
      nearest.empty() ? fmt::format("flags: distsetup {} --help", command.name) : fmt::format("did you mean '{}'", nearest);
  return error(code::kUnknownFlag, command_line(), fmt::format("unknown flag '{}' of 'distsetup {}'", word, command.name), help);
}

std::string value_hint(const FlagMatch& match) {
  if (match.flag != nullptr) return match.flag->placeholder;
  std::string hint;
  for (const SettingChoice& choice : match.key->choices) {
    if (choice.refused.empty()) hint += (hint.empty() ? "" : "|") + std::string(choice.value);
  }
  if (!hint.empty()) return hint;
  return match.key->type == SettingType::kText  ? "NAME"
         : match.key->type == SettingType::kInt ? "N"
                                                : std::string(name(match.key->type));
}

class Rewriter {
 public:
  Rewriter(const Command& command, Diagnostics& diagnostics) : command_(command), diagnostics_(diagnostics) {}

  std::vector<std::string> rewrite(const std::vector<std::string>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] == "--") {
        out_.insert(out_.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
        break;
      }
      if (!is_flag(words[i])) {
        out_.push_back(words[i]);
      } else if (words[i][1] == '-') {
        long_flag(words, i);
      } else {
        letters(words, i);
      }
    }
    return out_;
  }

 private:
  void long_flag(const std::vector<std::string>& words, size_t& i) {
    const std::string& word = words[i];
    const size_t equals = word.find('=');
    const std::string spelling = word.substr(2, equals == std::string::npos ? std::string::npos : equals - 2);
    const FlagMatch match = find_flag(command_, spelling);
    if (!match) {
      diagnostics_.push_back(unknown_flag(command_, word.substr(0, equals)));
      std::error_code ignored;
      const bool word_follows = equals == std::string::npos && i + 1 < words.size() && !is_flag(words[i + 1]);
      if (word_follows && !std::filesystem::exists(words[i + 1], ignored)) ++i;  // most likely its value: not a second mistake
      return;
    }
    const bool has_value = equals != std::string::npos;
    add(match, "--" + spelling, has_value ? std::optional(word.substr(equals + 1)) : std::nullopt, words, i);
  }

  // -q, -o PATH, -oPATH.
  void letters(const std::vector<std::string>& words, size_t& i) {
    const std::string& word = words[i];
    for (size_t at = 1; at < word.size(); ++at) {
      const Flag* flag = by_letter(word[at]);
      if (flag == nullptr) {
        diagnostics_.push_back(unknown_flag(command_, word));
        return;
      }
      const FlagMatch match{flag, nullptr, flag->name, flag->kind == FlagKind::kSwitch};
      const bool rest_is_value = !match.bare && at + 1 < word.size();
      add(match, fmt::format("-{}", word[at]), rest_is_value ? std::optional(word.substr(at + 1)) : std::nullopt, words, i);
      if (!match.bare) return;
    }
  }

  void add(const FlagMatch& match, const std::string& typed, std::optional<std::string> value, const std::vector<std::string>& words,
           size_t& i) {
    const bool next_is_word = i + 1 < words.size() && !is_flag(words[i + 1]);
    if (!value && next_is_word && (!match.bare || (match.key != nullptr && is_value_of(*match.key, words[i + 1])))) value = words[++i];
    if (match.flag != nullptr && match.bare && value) {
      diagnostics_.push_back(error(code::kWrongType, command_line(), fmt::format("'{}' takes no value, found '{}'", typed, *value),
                                   fmt::format("write {}", typed)));
      return;
    }
    if ((!value && !match.bare) || (value && value->empty())) {
      diagnostics_.push_back(error(code::kMissingArgument, command_line(), fmt::format("'{}' has no value, expected one", typed),
                                   fmt::format("write {} {}", typed, value_hint(match))));
      return;
    }
    const bool stands_alone = match.key != nullptr && !value;
    out_.push_back("--" + match.name + (value ? "=" + *value : stands_alone ? "=" + std::string(kAlone) : ""));
  }

  const Flag* by_letter(char letter) const {
    for (const std::vector<Flag>* flags : {&command_.flags, &common_flags()}) {
      for (const Flag& flag : *flags) {
        if (flag.letter == letter) return &flag;
      }
    }
    return nullptr;
  }

  const Command& command_;
  Diagnostics& diagnostics_;
  std::vector<std::string> out_;
};

// Every spelling its own CLI11 option: what was typed is what a message says.
struct Binding {
  CLI::App app;
  std::vector<std::string> positionals;
  CLI::Option* positional_option = nullptr;
  std::map<const CLI::Option*, FlagMatch> matches;

  void add(const std::string& name, const FlagMatch& match) {
    CLI::Option* option = nullptr;
    if (match.flag != nullptr && match.bare) {
      option = app.add_flag("--" + name);
    } else {
      option = app.add_option("--" + name, [](const CLI::results_t&) { return true; });
      option->expected(1)->allow_extra_args(false);
    }
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    matches[option] = match;
  }
};

void bind(Binding& binding, const Command& command) {
  binding.app.set_help_flag();
  for (const std::vector<Flag>* flags : {&command.flags, &common_flags()}) {
    for (const Flag& flag : *flags) binding.add(flag.name, find_flag(command, flag.name));
  }
  for (const SpecKey& key : spec_keys()) {
    for (const SettingFlag& flag : key.flags) {
      const FlagMatch match = find_flag(command, flag.name);
      if (match.key == &key && match.name == flag.name) binding.add(match.name, match);
    }
  }
  binding.positional_option = binding.app.add_option("positionals", binding.positionals);
}

void check_positionals(const Command& command, const std::vector<std::string>& found, Diagnostics& diagnostics) {
  const int count = static_cast<int>(found.size());
  if (count > command.max_positionals) {
    const std::string& extra = found[static_cast<size_t>(command.max_positionals)];
    const std::string expected = command.positional.empty() ? "flags only" : "at most " + command.positional;
    diagnostics.push_back(error(code::kUnknownFlag, command_line(), fmt::format("unexpected word '{}', expected {}", extra, expected),
                                fmt::format("usage: distsetup {} --help", command.name)));
  } else if (count < command.min_positionals) {
    diagnostics.push_back(error(code::kMissingArgument, command_line(),
                                fmt::format("'distsetup {}' has no {}, expected one", command.name, command.positional),
                                command.examples.empty() ? "" : command.examples.front()));
  }
}

void collect(const Binding& binding, Arguments& arguments, Diagnostics& diagnostics) {
  std::map<const CLI::Option*, size_t> seen;
  for (CLI::Option* option : binding.app.parse_order()) {
    const auto it = binding.matches.find(option);
    if (it == binding.matches.end()) continue;
    const FlagMatch& match = it->second;
    const size_t at = seen[option]++;
    const CLI::results_t& results = option->results();
    if (match.key != nullptr) {
      if (!is_utf8(results[at]))  // plan.json could not hold it
        diagnostics.push_back(error(code::kWrongType, command_line(),
                                    fmt::format("'--{}' has bytes that are no UTF-8 text, expected text", match.name)));
      arguments.run_flags.push_back({match.name, results[at] == kAlone ? std::nullopt : std::optional(results[at])});
      continue;
    }
    const std::string value = match.bare || at >= results.size() ? "" : results[at];
    const auto [present, is_new] = arguments.values.emplace(match.name, value);
    if (!is_new && match.flag->kind == FlagKind::kList) {
      present->second += "\n" + value;
    } else if (!is_new && present->second != value) {
      diagnostics.push_back(error(
          code::kConflict, command_line(),
          fmt::format("'--{}' is given twice, '{}' and '{}', expected once", match.name, present->second, value), "keep one of them"));
    }
  }
}

}  // namespace

Result<Arguments> parse(const Command& command, const std::vector<std::string>& words) {
  Diagnostics diagnostics;
  auto end = words.end();
  if (command.after_dashes != AfterDashes::kPositionals) end = std::find(words.begin(), words.end(), "--");
  std::vector<std::string> rewritten = Rewriter(command, diagnostics).rewrite({words.begin(), end});
  Binding binding;
  bind(binding, command);
  Arguments arguments;
  arguments.command = &command;
  try {
    std::reverse(rewritten.begin(), rewritten.end());  // CLI11 takes them from the back
    binding.app.parse(rewritten);
  } catch (const CLI::ParseError& failure) {
    diagnostics.push_back(
        error(code::kMissingArgument, command_line(), lower(failure.what()), fmt::format("usage: distsetup {} --help", command.name)));
    return diagnostics;
  }
  collect(binding, arguments, diagnostics);
  arguments.positionals = binding.positionals;
  if (end != words.end()) arguments.passed_on.assign(end + 1, words.end());
  check_positionals(command, arguments.positionals, diagnostics);
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(arguments), std::move(diagnostics)};
}

bool has_word(const std::vector<std::string>& words, std::string_view flag) {
  for (const std::string& word : words) {
    if (word == "--") return false;
    if (word.size() > 2 && word.compare(0, 2, "--") == 0 && same_name(std::string_view(word).substr(2), flag)) return true;
  }
  return false;
}

std::string value_of_word(const std::vector<std::string>& words, std::string_view flag) {
  for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i].compare(0, 2, "--") != 0) continue;
    const size_t equals = words[i].find('=');
    if (!same_name(std::string_view(words[i]).substr(2, equals == std::string::npos ? equals : equals - 2), flag)) continue;
    if (equals != std::string::npos) return words[i].substr(equals + 1);
    return i + 1 < words.size() ? words[i + 1] : "";
  }
  return "";
}

bool asks_for_help(const std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  return std::find(words.begin(), end, "-h") != end || std::find(words.begin(), end, "--help") != end;
}

}  // namespace distsetup
