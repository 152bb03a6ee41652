// CLI11 parses: it knows the flag table, with aliases, letters and lists. Around it stands what it has no rule for (2.1):
// - '-', '_' and letter case are the same in a flag. Its ignore_underscore() takes '_' away, and leaves '-' where it is.
// - A flag that may stand alone takes the next word only when its key knows it as a value: joined() then writes both as one word.
// - It stops at the first mistake and guesses no name. So unknown words are collected, a flag that needs a value may come without one,
//   and every mistake is told from what came out.
#include "cli/line/parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "cli/line/unknown_flag.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

constexpr std::string_view kAlone("\0", 1);  // what CLI11 says of a flag without its value; no word of a command line has it

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

std::string as_in_table(std::string_view name) {
  std::string folded = lower(name);
  std::replace(folded.begin(), folded.end(), '_', '-');
  return folded;
}

// One line of one command. What was typed of a flag is kept for messages.
class LineParser {
 public:
  // Of the settings, those that the line names: CLI11 compares each new option with all others.
  LineParser(const Command& command, const std::vector<std::string>& words) : command_(command) {
    std::set<std::string, std::less<>> named;
    for (const std::string& word : words) named.insert(as_in_table(word.substr(0, word.find('='))));
    app_.set_help_flag();
    app_.allow_extras();
    for (const std::vector<Flag>* flags : {&command.flags, &common_flags()}) {
      for (const Flag& flag : *flags) add(flag);
    }
    for (const SpecKey& key : spec_keys()) {
      if (!takes_key(command, key)) continue;
      for (const SettingFlag& flag : key.flags)
        if (named.contains(fmt::format("--{}", flag.name))) add(key, flag);
    }
    app_.add_option("positionals", positionals_);
  }

  Result<Arguments> parse(const std::vector<std::string>& words) {
    std::vector<std::string> line = joined(words);
    try {
      std::reverse(line.begin(), line.end());  // CLI11 takes them from the back
      app_.parse(line);
    } catch (const CLI::ParseError& failure) {
      diagnostics_.push_back(error(code::kMissingArgument, command_line(), lower(failure.what()),
                                   fmt::format("usage: distsetup {} --help", command_.name)));
      return diagnostics_;
    }
    tell_unknown(words);
    collect();
    arguments_.command = &command_;
    arguments_.positionals = std::move(positionals_);
    return {std::move(arguments_), std::move(diagnostics_)};
  }

 private:
  void add(const Flag& flag) {
    std::string names = "--" + flag.name;
    for (const std::string& alias : flag.aliases) names += ",--" + as_in_table(alias);
    if (flag.letter != 0) names += fmt::format(",-{}", flag.letter);
    CLI::Option* option = flag.kind == FlagKind::kSwitch ? app_.add_flag(names) : add_option(names);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    matches_[option] = {&flag, nullptr, flag.name, flag.kind == FlagKind::kSwitch};
  }

  // Every spelling of a key is an option of its own, since it may say a value by itself.
  void add(const SpecKey& key, const SettingFlag& flag) {
    CLI::Option* option = add_option(fmt::format("--{}", flag.name));
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    matches_[option] = {nullptr, &key, std::string(flag.name), !flag.bare.empty()};
  }

  CLI::Option* add_option(const std::string& names) {
    CLI::Option* option = app_.add_option(names, [](const CLI::results_t&) { return true; });
    return option->expected(0, 1)->allow_extra_args(false)->default_str(std::string(kAlone));
  }

  const FlagMatch* match_of(const std::string& flag) const {
    const CLI::Option* option = app_.get_option_no_throw(flag);
    const auto it = option == nullptr ? matches_.end() : matches_.find(option);
    return it == matches_.end() ? nullptr : &it->second;
  }

  std::vector<std::string> joined(const std::vector<std::string>& words) {
    std::vector<std::string> out;
    for (size_t i = 0; i < words.size(); ++i) {
      const std::string& word = words[i];
      if (!is_flag(word) || word[1] != '-') {
        out.push_back(word);
        continue;
      }
      const size_t equals = std::min(word.find('='), word.size());
      const std::string flag = as_in_table(word.substr(0, equals)), typed = word.substr(0, equals);
      const FlagMatch* match = match_of(flag);
      if (match != nullptr) typed_[match->name] = typed;
      const bool has_value = equals < word.size();
      if (match != nullptr && has_value && match->flag != nullptr && match->bare) {
        diagnostics_.push_back(error(code::kWrongType, command_line(),
                                     fmt::format("'{}' takes no value, found '{}'", typed, word.substr(equals + 1)),
                                     fmt::format("write {}", typed)));
      } else if (match != nullptr && equals + 1 == word.size()) {
        tell_missing(*match);
      } else if (match != nullptr && match->bare && match->key != nullptr && !has_value) {
        const bool takes_next = i + 1 < words.size() && is_value_of(*match->key, words[i + 1]);
        out.push_back(flag + "=" + (takes_next ? words[++i] : std::string(kAlone)));
      } else {
        out.push_back(flag + word.substr(equals));
      }
    }
    return out;
  }

  void tell_missing(const FlagMatch& match) {
    const auto it = typed_.find(match.name);
    const std::string typed = it != typed_.end() ? it->second : fmt::format("-{}", match.flag->letter);
    diagnostics_.push_back(error(code::kMissingArgument, command_line(), fmt::format("'{}' has no value, expected one", typed),
                                 fmt::format("write {} {}", typed, value_hint(match))));
  }

  // CLI11 gives unknown flags in their order, and takes the word behind one for a positional. Most likely it is the flag's value, and
  // not a second mistake.
  void tell_unknown(const std::vector<std::string>& words) {
    auto from = words.begin();
    for (const std::string& one : app_.remaining()) {
      const std::string flag = one.substr(0, one.find('='));
      const auto at = std::find_if(from, words.end(),
                                   [&flag](const std::string& word) { return same_name(word.substr(0, word.find('=')), flag); });
      if (at == words.end()) {  // a letter behind others
        diagnostics_.push_back(unknown_flag(command_, flag, ""));
        continue;
      }
      from = at + 1;
      const bool has_next = one == flag && from != words.end() && !is_flag(*from);
      const std::string value = one != flag ? one.substr(flag.size() + 1) : has_next ? *from : "";
      diagnostics_.push_back(unknown_flag(command_, at->substr(0, flag.size()), value));
      std::error_code ignored;
      if (one != flag || from == words.end() || is_flag(*from) || std::filesystem::exists(*from, ignored)) continue;
      const auto positional = std::find(positionals_.begin(), positionals_.end(), *from);
      if (positional != positionals_.end()) positionals_.erase(positional);
    }
  }

  void collect() {
    std::map<const CLI::Option*, size_t> seen;
    for (const CLI::Option* option : app_.parse_order()) {
      const auto it = matches_.find(option);
      if (it == matches_.end()) continue;
      const FlagMatch& match = it->second;
      const std::string& value = option->results().at(seen[option]++);
      const bool is_alone = value == kAlone;
      if (value.empty() || (is_alone && !match.bare)) {
        tell_missing(match);
      } else if (match.key != nullptr) {
        if (!is_utf8(value))  // plan.json could not hold it
          diagnostics_.push_back(error(code::kWrongType, command_line(),
                                       fmt::format("'--{}' has bytes that are no UTF-8 text, expected text", match.name)));
        arguments_.run_flags.push_back({match.name, is_alone ? std::nullopt : std::optional(value)});
      } else {
        keep(match, match.bare ? "" : value);
      }
    }
  }

  void keep(const FlagMatch& match, const std::string& value) {
    if (match.name == "output" && value == "-")
      diagnostics_.push_back(error(
          code::kUnknownValue, command_line(), "'--output -' names no file",
          "leave it away: what is one file then goes to standard output, and --json prints what has another form, such as a plan"));
    const auto [present, is_new] = arguments_.values.emplace(match.name, value);
    if (!is_new && match.flag->kind == FlagKind::kList) {
      present->second += "\n" + value;
    } else if (!is_new && present->second != value) {
      diagnostics_.push_back(error(
          code::kConflict, command_line(),
          fmt::format("'--{}' is given twice, '{}' and '{}', expected once", match.name, present->second, value), "keep one of them"));
    }
  }

  const Command& command_;
  CLI::App app_;
  std::map<const CLI::Option*, FlagMatch> matches_;
  std::map<std::string, std::string> typed_;  // canonical name -> as it was typed, with dashes
  std::vector<std::string> positionals_;
  Arguments arguments_;
  Diagnostics diagnostics_;
};

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

}  // namespace

Result<Arguments> parse(const Command& command, const std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  const std::vector<std::string> line(words.begin(), end);
  Result<Arguments> parsed = LineParser(command, line).parse(line);
  if (!parsed.value) return parsed.diagnostics;
  if (end != words.end()) {
    std::vector<std::string>& into = command.after_dashes == AfterDashes::kPositionals ? parsed->positionals : parsed->passed_on;
    into.insert(into.end(), end + 1, words.end());
  }
  check_positionals(command, parsed->positionals, parsed.diagnostics);
  if (has_error(parsed.diagnostics)) return parsed.diagnostics;
  return parsed;
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
