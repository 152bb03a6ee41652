// `distsetup probe`: flags to ProbeOptions.
#include "cli/commands/commands.h"
#include "cli/launch/probe.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

int run_probe_command(const Arguments& arguments, const Terminal& terminal) {
  ProbeOptions options;
  const Result<double> budget_s = double_flag(arguments, "seconds", options.budget_s);
  if (!budget_s.ok()) return fail(arguments, terminal, budget_s.diagnostics);
  options.budget_s = *budget_s;
  options.output_path = arguments.text("output");
  options.json = arguments.has("json");
  options.force = arguments.has("force");
  options.trainer_path = arguments.text("trainer-program");
  const int code = run_probe(options);
  if (code == kDone && !options.output_path.empty()) {
    suggest_next(terminal, "distsetup plan --model quickstart --machine " + join_command({options.output_path}));
  }
  return code;
}

}  // namespace

Command probe_command() {
  Command command;
  command.summary = "measure this machine, as an input of plan";
  command.examples = {"distsetup probe --output machine.yaml", "distsetup probe --json"};
  command.flags = {output_flag("write the machine there"),
                   force_flag(),
                   {"seconds", {}, FlagKind::kValue, "S", "about how long all measurements may take (6)", 0},
                   {"trainer-program", {"trainer"}, FlagKind::kValue, "PATH", "distsetup-train (the one beside this program)", 0}};
  command.run = run_probe_command;
  return command;
}

}  // namespace distsetup
