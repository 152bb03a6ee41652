// fish: a line per flag, for all the commands that have it alike.
#include "cli/line/completions_fish.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands/commands.h"
#include "cli/line/flag_offers.h"

namespace distsetup {
namespace {

std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_words(const Offer& offer) {
  if (!offer.words.empty()) return " -a " + fish_quoted(fmt::format("{}", fmt::join(offer.words, " ")));
  return offer.folders ? " -a '(__fish_complete_directories)'" : "";
}

std::string fish_flag(const FlagOffer& flag) {
  std::string out = " -l " + flag.spellings.front();
  if (flag.letter != 0) out += fmt::format(" -s {}", flag.letter);
  if (flag.takes_value) {
    out += flag.may_stand_alone ? "" : " -r";
    out += flag.value.files ? " -F" : " -f";
    out += fish_words(flag.value);
  }
  return out + " -d " + fish_quoted(flag.help);
}

constexpr std::string_view kFish = R"(
function __distsetup_is -d 'whether one of these commands is on the line'
    set -l words (commandline -opc)
    set -q words[2]; or return 1
    contains -- "$words[2]" $argv; and return
    set -q words[3]; and contains -- "$words[2..3]" $argv
end

complete -c distsetup -f
complete -c distsetup -n '__fish_is_first_token' -l help -d 'every command'
complete -c distsetup -n '__fish_is_first_token' -l version -d 'the version of this program'
)";

}  // namespace

std::string fish_completions() {
  std::string out = "# fish completions of distsetup " DISTSETUP_VERSION
                    ". In every shell: distsetup completions fish > ~/.config/fish/completions/distsetup.fish\n"
                    "# In this one: distsetup completions fish | source\n";
  out += kFish;
  std::vector<std::pair<std::string, std::vector<std::string>>> flags;  // a flag's line -> the commands that have it
  std::string before;
  for (const Command& command : commands()) {
    const size_t space = command.name.find(' ');
    const std::string first = command.name.substr(0, space);
    if (first != before) {  // commands of a group stand together
      out += fmt::format("complete -c distsetup -n 'test (count (commandline -opc)) -eq 1' -a {} -d {}\n", first,
                         fish_quoted(command.summary));
    }
    before = first;
    if (space != std::string::npos) {
      out += fmt::format("complete -c distsetup -n '__distsetup_is {}; and test (count (commandline -opc)) -eq 2' -a {}\n", first,
                         command.name.substr(space + 1));
    }
    const Offer offer = positional_offer(command);
    if (offer.files || !offer.words.empty()) {
      out += fmt::format("complete -c distsetup -n '__distsetup_is \"{}\"'{}{}\n", command.name, offer.files ? " -F" : "",
                         fish_words(offer));
    }
    for (const FlagOffer& flag : flag_offers(command)) {
      if (!flag.is_shown) continue;
      const std::string line = fish_flag(flag);
      const auto known = std::find_if(flags.begin(), flags.end(), [&line](const auto& one) { return one.first == line; });
      if (known != flags.end()) {
        known->second.push_back(command.name);
      } else {
        flags.push_back({line, {command.name}});
      }
    }
  }
  for (const auto& [line, names] : flags)
    out += fmt::format("complete -c distsetup -n '__distsetup_is \"{}\"'{}\n", fmt::join(names, "\" \""), line);
  return out;
}

}  // namespace distsetup
