// zsh: a spec of _arguments per flag, a case over the commands.
#include "cli/line/completions_zsh.h"

#include <fmt/format.h>

#include <fmt/ranges.h>
#include <map>

#include "cli/commands/commands.h"
#include "cli/line/flag_offers.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// What may stand there, as _arguments calls it.
std::string zsh_action(const Offer& offer) {
  const std::string words = fmt::format("{}", fmt::join(offer.words, " "));
  if (!words.empty()) return offer.files ? " _distsetup_or_files " + words : "(" + words + ")";
  return offer.files ? "_files" : offer.folders ? "_files -/" : " ";
}

std::vector<std::string> zsh_specs(const FlagOffer& flag) {
  std::vector<std::string> names = {"--" + flag.spellings.front()};
  if (flag.letter != 0) names.push_back(fmt::format("-{}", flag.letter));
  const std::string others = flag.may_repeat ? "*" : names.size() > 1 ? fmt::format("({})", fmt::join(names, " ")) : "";
  std::vector<std::string> specs;
  for (const std::string& name : names) {
    std::string spec = others + name;
    if (flag.takes_value) spec += name.size() == 2 ? "+" : "=";
    spec += "[" + zsh_escaped(flag.help) + "]";
    if (flag.takes_value) spec += (flag.may_stand_alone ? "::" : ":") + zsh_escaped(flag.placeholder) + ":" + zsh_action(flag.value);
    specs.push_back(std::move(spec));
  }
  return specs;
}

constexpr std::string_view kZsh = R"(
_distsetup_or_files() {
  compadd -- "$@"
  _files
}

_distsetup() {
  local command=$words[2]
  if (( CURRENT == 2 )); then
    _describe -t commands command _distsetup_commands
    compadd -- --help --version
    return
  fi
  if (( $+_distsetup_two[$command] )); then # commands of two words
    if (( CURRENT == 3 )); then
      compadd -- ${=_distsetup_two[$command]}
      return
    fi
    command+=" $words[3]"
    shift words
    (( CURRENT-- ))
  fi
  shift words
  (( CURRENT-- ))
  case $command in
)";

}  // namespace

std::string zsh_completions() {
  std::string list, cases;
  std::map<std::string, std::string> two;  // first word -> second words
  for (const Command& command : commands()) {
    const size_t space = command.name.find(' ');
    const std::string first = command.name.substr(0, space);
    if (two.find(first) == two.end()) list += "  " + quote_shell(first + ":" + command.summary) + "\n";
    if (space != std::string::npos) two[first] += (two[first].empty() ? "" : " ") + command.name.substr(space + 1);
    cases += fmt::format("    '{}')\n      _arguments -s -S :", command.name);
    for (const FlagOffer& flag : flag_offers(command)) {
      if (!flag.is_shown) continue;
      for (const std::string& spec : zsh_specs(flag)) cases += " \\\n        " + quote_shell(spec);
    }
    if (!command.positional.empty()) {
      const std::string spec = "*:" + zsh_escaped(command.positional) + ":" + zsh_action(positional_offer(command));
      cases += " \\\n        " + quote_shell(spec);
    }
    cases += "\n      ;;\n";
  }
  std::string out = "#compdef distsetup\n# zsh completions of distsetup " DISTSETUP_VERSION
                    ". In a folder of $fpath: distsetup completions zsh > \"${fpath[1]}/_distsetup\"\n"
                    "# In this shell, after compinit: source <(distsetup completions zsh)\n\n";
  out += "typeset -ga _distsetup_commands=(\n" + list + ")\ntypeset -gA _distsetup_two=(\n";
  for (const auto& [first, second] : two) out += fmt::format("  {} {}\n", first, quote_shell(second));
  out += ")\n";
  out += kZsh;
  // Autoloaded from $fpath the file is the function's body; sourced it defines it.
  return out + cases +
         "  esac\n}\n\nif [[ $funcstack[1] == _distsetup ]]; then\n  _distsetup \"$@\"\nelse\n  compdef _distsetup distsetup\n"
         "fi\n";
}

}  // namespace distsetup
