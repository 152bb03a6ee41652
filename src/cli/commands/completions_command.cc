// `distsetup completions SHELL` and `distsetup man`: what is generated from the flag table beside the help.
#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "cli/commands/commands.h"
#include "cli/deliver/deliver.h"
#include "cli/line/completions.h"
#include "cli/line/completions_fish.h"
#include "cli/line/completions_zsh.h"
#include "cli/line/man_page.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"

namespace distsetup {
namespace {

int run_completions(const Arguments& arguments, const Terminal& terminal) {
  const std::string& shell = arguments.positionals[0];
  if (same_name(shell, "bash")) return deliver(arguments, terminal, one_file(arguments, {"distsetup", bash_completions(), false}));
  if (same_name(shell, "zsh")) return deliver(arguments, terminal, one_file(arguments, {"_distsetup", zsh_completions(), false}));
  if (same_name(shell, "fish"))
    return deliver(arguments, terminal, one_file(arguments, {"distsetup.fish", fish_completions(), false}));
  return fail(arguments, terminal,
              {error(code::kUnknownValue, command_line(), fmt::format("no completions for '{}', expected bash, zsh or fish", shell),
                     "distsetup completions bash")});
}

int run_man(const Arguments& arguments, const Terminal& terminal) {
  return deliver(arguments, terminal, one_file(arguments, {"distsetup.1", man_page(), false}));
}

}  // namespace

Command completions_command() {
  Command command;
  command.summary = "a script that completes commands, flags and values in bash, zsh or fish";
  command.positional = "bash|zsh|fish";
  command.positional_values = [] { return std::vector<std::string>{"bash", "zsh", "fish"}; };
  command.min_positionals = 1;
  command.max_positionals = 1;
  command.examples = {"distsetup completions bash --output ~/.local/share/bash-completion/completions/distsetup",
                      "distsetup completions zsh --output \"${fpath[1]}/_distsetup\"",
                      "distsetup completions fish --output ~/.config/fish/completions/distsetup.fish"};
  command.flags = {output_flag("write the script there"), force_flag()};
  command.run = run_completions;
  return command;
}

Command man_command() {
  Command command;
  command.summary = "the manual page, for man(1)";
  command.examples = {"distsetup man | man -l -", "distsetup man --output ~/.local/share/man/man1/distsetup.1"};
  command.flags = {output_flag("write the page there"), force_flag()};
  command.run = run_man;
  return command;
}

}  // namespace distsetup
