// `distsetup schema`: JSON Schema of the files that people write.
#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/deliver/deliver.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "codegen/job/site_schema.h"
#include "planner/spec/spec_schema.h"

namespace distsetup {
namespace {

int run_schema_command(const Arguments& arguments, const Terminal& terminal) {
  const std::string which = arguments.positionals.empty() ? "run" : arguments.positionals[0];
  if (which == "site") return deliver(arguments, terminal, one_file(arguments, {"site.schema.json", dump_json(site_schema()), false}));
  if (which != "run") {
    return fail(
        arguments, terminal,
        {error(code::kUnknownValue, command_line(), "no schema of '" + which + "', expected run or site", "distsetup schema run")});
  }
  return deliver(arguments, terminal, one_file(arguments, {"run.schema.json", dump_json(run_schema()), false}));
}

}  // namespace

Command schema_command() {
  Command command;
  command.summary = "JSON Schema of a run file or a site file, for editors and checkers";
  command.positional = "[run|site]";
  command.positional_values = [] { return std::vector<std::string>{"run", "site"}; };
  command.max_positionals = 1;
  command.examples = {"distsetup schema", "distsetup schema run --output run.schema.json", "distsetup schema site"};
  command.notes = "Draft-07, from the table that the reader uses. `distsetup init` writes the line that points an editor to it.";
  command.flags = {output_flag("write the schema there"), force_flag()};
  command.run = run_schema_command;
  return command;
}

}  // namespace distsetup
