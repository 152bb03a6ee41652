// bash: a case over the words before the cursor. `--flag=value` reaches it as three words, since '=' breaks words there.
#include "cli/line/completions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "cli/commands/commands.h"
#include "cli/line/flag_offers.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

// "words='zero1 zero2' place=file"
std::string bash_offer(const Offer& offer) {
  std::string out = fmt::format("words={}", quote_shell(fmt::format("{}", fmt::join(offer.words, " "))));
  return out + (offer.files ? " place=file" : offer.folders ? " place=folder" : "");
}

// What follows each flag that takes a value. Where all commands agree the flag alone decides.
std::string bash_values() {
  std::map<std::string, std::map<std::string, std::string>> by_flag;  // flag -> what follows -> pattern of the commands
  for (const Command& command : commands()) {
    for (const FlagOffer& flag : flag_offers(command)) {
      if (!flag.takes_value) continue;
      std::vector<std::string> words;
      for (const std::string& spelling : flag.spellings) words.push_back("--" + spelling);
      if (flag.letter != 0) words.push_back(fmt::format("-{}", flag.letter));
      for (const std::string& word : words) {
        std::string& pattern = by_flag[word][bash_offer(flag.value) + (flag.may_stand_alone ? " alone=yes" : "")];
        pattern += fmt::format("{}'{} {}'", pattern.empty() ? "" : " | ", command.name, word);
      }
    }
  }
  std::map<std::string, std::string> cases;  // what follows -> patterns
  for (const auto& [word, values] : by_flag) {
    for (const auto& [what, pattern] : values) {
      std::string& patterns = cases[what];
      patterns += (patterns.empty() ? "" : " | ") + (values.size() == 1 ? fmt::format("*' {}'", word) : pattern);
    }
  }
  std::string out;
  for (const auto& [what, patterns] : cases) out += fmt::format("    {}) {} ;;\n", patterns, what);
  return out;
}

std::string bash_flags() {
  std::string out;
  for (const Command& command : commands()) {
    std::vector<std::string> flags;
    for (const FlagOffer& flag : flag_offers(command)) {
      if (flag.is_shown) flags.push_back("--" + flag.spellings.front());
    }
    out += fmt::format("    '{}')\n      flags='{}'\n      {}\n      ;;\n", command.name, fmt::join(flags, " "),
                       bash_offer(positional_offer(command)));
  }
  return out;
}

constexpr std::string_view kBash = R"(
# Words of the list $1 that begin as the current one does. compgen -W would expand them.
_distsetup_reply() {
  local word list
  IFS=' ' read -ra list <<<"$1"
  for word in "${list[@]}"; do
    if [[ $word == "$current"* ]]; then COMPREPLY+=("$word"); fi
  done
}

_distsetup_places() {
  local option=-f one
  case $place in
    file) ;;
    folder) option=-d ;;
    *) return ;;
  esac
  compopt -o filenames 2>/dev/null
  while IFS= read -r one; do COMPREPLY+=("$one"); done < <(compgen "$option" -- "$current")
}

_distsetup() {
  local words='' place='' alone='' flags='' i
  local command=${COMP_WORDS[1]-} current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _distsetup_reply "$_distsetup_commands --help --version"
    return
  fi
  for i in "${_distsetup_two[@]}"; do # commands of two words
    if [[ ${i% *} == "$command" ]]; then words+="${i#* } "; fi
  done
  if [[ $words ]]; then
    if ((COMP_CWORD == 2)); then
      _distsetup_reply "$words"
      return
    fi
    command+=" ${COMP_WORDS[2]}"
    words=''
  fi
  for ((i = 2; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then # a program of the user's, with its own words
      place='file'
      _distsetup_places
      return
    fi
  done
  if [[ $current == '=' ]]; then
    current=''
  elif [[ $before == '=' ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  before=${before//_/-}
  if [[ $before == -* && $current != -* ]] && _distsetup_value; then
    _distsetup_reply "$words"
    _distsetup_places
    if [[ ! $alone || ${#COMPREPLY[@]} -gt 0 ]]; then return; fi
  fi
  words='' place=''
  _distsetup_flags
  if [[ $current == -* ]]; then
    _distsetup_reply "$flags"
  else
    _distsetup_reply "$words"
    _distsetup_places
  fi
}
complete -F _distsetup distsetup
)";

}  // namespace

std::string bash_completions() {
  std::string names, two, before;
  for (const Command& command : commands()) {
    const std::string first = command.name.substr(0, command.name.find(' '));
    if (first != command.name) two += fmt::format("{}'{}'", two.empty() ? "" : " ", command.name);
    if (first != before) names += (names.empty() ? "" : " ") + first;  // commands of a group stand together
    before = first;
  }
  std::string out =
      "# shellcheck shell=bash disable=SC2034\n"
      "# bash completions of distsetup " DISTSETUP_VERSION
      ". In every shell: distsetup completions bash > ~/.local/share/bash-completion/completions/distsetup\n"
      "# In this one: eval \"$(distsetup completions bash)\"\n";
  out += fmt::format("_distsetup_commands='{}'\n_distsetup_two=({})\n", names, two);
  out += kBash;
  out += "\n# What may follow the flag $before.\n_distsetup_value() {\n  case \"$command $before\" in\n" + bash_values() +
         "    *) return 1 ;;\n  esac\n}\n";
  return out + "\n# A command's flags, and what it takes beside them.\n_distsetup_flags() {\n  case $command in\n" + bash_flags() +
         "  esac\n}\n";
}

}  // namespace distsetup
