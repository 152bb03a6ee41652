#include "cli/commands/commands.h"

#include <fmt/format.h>

#include "base/names.h"

namespace distsetup {

std::string suggest_command(const std::string& typed, const std::vector<std::string>& known) {
  for (const std::string& name : known) {  // "config" alone
    if (name.compare(0, typed.size() + 1, typed + " ") == 0) return fmt::format("did you mean '{}'", name);
  }
  return suggest(typed, known);
}

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = {
      plan_command(),     emit_command(),   convert_command(),     fsdp_command(),        deepspeed_command(), slurm_command(),
      launcher_command(), launch_command(), probe_command(),       config_show_command(), diff_command(),      compare_command(),
      init_command(),     schema_command(), lint_command(),        validate_command(),    explain_command(),   sweep_command(),
      list_command(),     help_command(),   completions_command(), man_command(),         version_command(),
  };
  return kCommands;
}

const Command* find_command(std::string_view name) {
  for (const Command& command : commands()) {
    if (same_name(command.name, name)) return &command;
  }
  return nullptr;
}

}  // namespace distsetup
