// From argv to a command: which one, does it want help, is the line right, run it.
#include "cli/cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "cli/commands/commands.h"
#include "cli/line/help.h"
#include "cli/line/output.h"
#include "cli/line/parse.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

// The command the words begin with, and how many of them name it ("config show": two).
struct Chosen {
  const Command* command = nullptr;
  size_t num_words = 0;
};

Chosen choose(const std::vector<std::string>& words) {
  if (words.size() >= 2) {
    if (const Command* two = find_command(words[0] + " " + words[1])) return {two, 2};
  }
  return {find_command(words[0]), 1};
}

Diagnostic unknown_command(const std::vector<std::string>& words) {
  const std::string& first = words[0];
  const std::vector<std::string> known = command_names();
  if (first[0] == '-') {
    const std::vector<std::string> own = {"--help", "--version", "-h", "-V"};
    const std::string meant = nearest_name(first, own);
    return error(code::kUnknownCommand, command_line(), fmt::format("'{}' stands where a command is expected", first),
                 !meant.empty()     ? fmt::format("did you mean '{}'", meant)
                 : words.size() < 2 ? "distsetup --help lists the commands"
                                    : fmt::format("put the command first: distsetup plan {}", join_command(words)));
  }
  // "jobs" or "jobs lst": the group of "jobs list" is known, the command is not.
  const bool is_group =
      std::any_of(known.begin(), known.end(), [&first](const std::string& one) { return one.starts_with(first + " "); });
  const std::string what = !is_group           ? fmt::format("unknown command '{}'", first)
                           : words.size() == 1 ? fmt::format("'{}' needs a subcommand", first)
                                               : fmt::format("unknown command '{} {}'", first, words[1]);
  return error(code::kUnknownCommand, command_line(), what, suggest_command(first, known));
}

ColourChoice colour_choice(const std::vector<std::string>& words) {
  std::string text = value_of_word(words, "color");
  if (text.empty()) text = value_of_word(words, "colour");
  if (same_name(text, "always")) return ColourChoice::kAlways;
  return same_name(text, "never") ? ColourChoice::kNever : ColourChoice::kAuto;
}

int run_words(const std::vector<std::string>& words) {
  guard_standard_streams();
  const bool is_quiet = has_word(words, "quiet") || std::find(words.begin(), words.end(), "-q") != words.end();
  const Terminal terminal = make_terminal(colour_choice(words), is_quiet ? Talk::kQuiet : Talk::kNormal);
  if (words.empty()) return print_result(terminal, short_help());

  Arguments failed;  // knows about --json when nothing else is known
  if (has_word(words, "json")) failed.values["json"] = "";
  if (words[0] == "--version" || words[0] == "-V") return run_words({"version"});
  const bool wants_help = asks_for_help(words);
  const Chosen chosen = words[0][0] == '-' ? Chosen{} : choose(words);
  if (chosen.command == nullptr) {
    const std::string of_group = wants_help ? group_help(words[0], terminal.out) : "";  // data --help
    if (!of_group.empty()) return print_result(terminal, of_group);
    if (wants_help && words[0][0] == '-') return print_result(terminal, long_help(terminal.out));
    return fail(failed, terminal, {unknown_command(words)});
  }
  if (wants_help) return print_result(terminal, command_help(*chosen.command, terminal.out));

  const std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(chosen.num_words), words.end());
  Result<Arguments> arguments = parse(*chosen.command, rest);
  if (!arguments.ok()) return fail(failed, terminal, arguments.diagnostics);
  arguments->words = words;
  const Result<std::string> colour = choice_flag(*arguments, "color", "auto", {"auto", "always", "never"});
  if (!colour.ok()) return fail(*arguments, terminal, colour.diagnostics);
  return chosen.command->run(*arguments, terminal);
}

}  // namespace

int run_cli(const std::vector<std::string>& words) {
  try {
    return run_words(words);
  } catch (const std::exception& failure) {  // out of memory, or a bug: mistakes of the user are values
    say(fmt::format("error: {}\n  this is not your mistake: please report it with the command line\n", failure.what()));
    return kFailed;
  }
}

}  // namespace distsetup
