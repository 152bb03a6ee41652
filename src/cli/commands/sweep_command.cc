// `distsetup sweep`: one plan per value of a setting, as a table.
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "cli/settings/trials.h"
#include "cli/settings/varied.h"

namespace distsetup {
namespace {

int run_sweep(const Arguments& arguments, const Terminal& terminal) {
  const Result<std::vector<VariedSetting>> varied = read_varied(arguments, 2);
  if (!varied.ok()) return fail(arguments, terminal, varied.diagnostics);
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  Result<Spec> spec = read_spec(arguments, *session);
  if (!spec.ok()) return fail(arguments, terminal, spec.diagnostics);
  std::vector<Trial> trials;
  for (const Combination& one : combinations(*varied)) trials.push_back(try_value(arguments, *session, *spec, one, label_of(one)));
  if (arguments.has("json")) {
    Json over = Json::array();
    for (const VariedSetting& setting : *varied) over.push_back(setting.path);
    return print_result(terminal, dump_json({{"schema_version", 1}, {"over", over}, {"rows", trials_json(trials)}}));
  }
  return print_result(terminal, trials_text(heading_of(*varied), trials, "", terminal.out));
}

}  // namespace

Command sweep_command() {
  Command command;
  command.summary = "one plan per value of a setting, as a table";
  command.positional = "[run.yaml]";
  command.max_positionals = 1;
  command.examples = {"distsetup sweep --over sequence-length=4096,8192,16384,32768 --model 8B --nodes 1",
                      "distsetup sweep --over nodes=1,2,4,8 --over micro-batch=1,2 --model 70B --trainer fsdp2"};
  command.notes = "Everything that is not swept or given is searched anew for each line.";
  command.flags = {{"over", {}, FlagKind::kList, "KEY=V1,V2", "the setting and its values; twice: every pair", 0},
                   goal_flag(),
                   config_flag(),
                   presets_flag()};
  for (Flag& flag : layer_flags()) command.flags.push_back(std::move(flag));
  command.run_keys = kAllRunKeys;
  command.run = run_sweep;
  return command;
}

}  // namespace distsetup
