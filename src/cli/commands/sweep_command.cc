// `distsetup sweep`: one plan per value of a setting, as a table.
#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "cli/settings/trials.h"
#include "planner/search/goal.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

struct Axis {
  std::string path, name;
  std::vector<std::string> values;
};

Result<Axis> parse_axis(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string example = "--over sequence-length=4096,8192,16384";
  if (equals == std::string::npos || equals + 1 >= text.size())
    return error(code::kMissingArgument, command_line(), fmt::format("'{}' is not KEY=VALUE,VALUE", text), example);
  Axis axis;
  axis.name = text.substr(0, equals);
  const SpecKey* key = find_spec_key(axis.name);
  if (key == nullptr) key = find_spec_flag(axis.name);
  if (key == nullptr) {
    std::vector<std::string> known;
    for (const SpecKey& one : spec_keys()) known.emplace_back(one.path);
    return error(code::kUnknownKey, command_line(), fmt::format("no setting is called '{}'", axis.name), suggest(axis.name, known));
  }
  axis.path = key->path;
  for (size_t at = equals + 1; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) axis.values.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return axis;
}

int run_sweep(const Arguments& arguments, const Terminal& terminal) {
  if (!arguments.has("over"))
    return fail(arguments, terminal, {error(code::kMissingArgument, command_line(), "nothing to sweep over", "--over nodes=1,2,4,8")});
  std::vector<Axis> axes;
  for (const std::string& one : lines_of(arguments.text("over"))) {
    Result<Axis> axis = parse_axis(one);
    if (!axis.ok()) return fail(arguments, terminal, axis.diagnostics);
    axes.push_back(std::move(*axis));
  }
  if (axes.size() > 2)
    return fail(
        arguments, terminal,
        {error(code::kOutOfRange, command_line(), fmt::format("{} settings to sweep over, expected one or two", axes.size()))});
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  Result<Spec> spec = read_spec(arguments, *session);
  if (!spec.ok()) return fail(arguments, terminal, spec.diagnostics);
  std::vector<Trial> trials;
  for (const std::string& first : axes[0].values) {
    if (axes.size() == 1) {
      trials.push_back(try_value(arguments, *session, *spec, {{axes[0].path, first}}, first));
      continue;
    }
    for (const std::string& second : axes[1].values)
      trials.push_back(try_value(arguments, *session, *spec, {{axes[0].path, first}, {axes[1].path, second}}, first + " × " + second));
  }
  const std::string heading = axes.size() == 1 ? axes[0].name : axes[0].name + " × " + axes[1].name;
  if (arguments.has("json")) {
    Json over = Json::array();
    for (const Axis& axis : axes) over.push_back(axis.path);
    return print_result(terminal, dump_json({{"schema_version", 1}, {"over", over}, {"rows", trials_json(trials)}}));
  }
  return print_result(terminal, trials_text(heading, trials, "", terminal.out));
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
