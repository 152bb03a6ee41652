// `distsetup help` and `distsetup version`.
#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "cli/commands/commands.h"
#include "cli/line/help.h"
#include "cli/line/output.h"
#include "plan/plan.h"

namespace distsetup {
namespace {

std::vector<std::string> help_topics() {
  std::vector<std::string> names = {"exit-codes", "keys"};
  for (std::string& name : command_names()) names.push_back(std::move(name));
  return names;
}

int run_help(const Arguments& arguments, const Terminal& terminal) {
  if (arguments.positionals.empty()) return print_result(terminal, long_help(terminal.out));
  std::string topic = arguments.positionals[0];
  if (arguments.positionals.size() > 1) topic += " " + arguments.positionals[1];
  if (same_name(topic, "exit-codes")) return print_result(terminal, exit_codes_help());
  if (same_name(topic, "keys")) return print_result(terminal, keys_help(terminal.out));
  if (const Command* command = find_command(topic)) return print_result(terminal, command_help(*command, terminal.out));
  const std::string of_group = group_help(topic, terminal.out);
  if (!of_group.empty()) return print_result(terminal, of_group);
  return fail(
      arguments, terminal,
      {error(code::kUnknownCommand, command_line(), fmt::format("no help about '{}'", topic), suggest_command(topic, help_topics()))});
}

int run_version(const Arguments& arguments, const Terminal& terminal) {
  if (!arguments.has("json")) return print_result(terminal, "distsetup " DISTSETUP_VERSION "\n");
  return print_result(terminal,
                      dump_json({{"version", DISTSETUP_VERSION}, {"plan_schema_version", kPlanSchemaVersion}, {"schema_version", 1}}));
}

}  // namespace

Command help_command() {
  Command command;
  command.summary = "help about a command, 'keys' or 'exit-codes'";
  command.positional = "[COMMAND|keys|exit-codes]";
  command.positional_values = help_topics;
  command.max_positionals = 2;
  command.examples = {"distsetup help keys", "distsetup help exit-codes"};
  command.run = run_help;
  return command;
}

Command version_command() {
  Command command;
  command.summary = "the version of this program";
  command.run = run_version;
  return command;
}

}  // namespace distsetup
