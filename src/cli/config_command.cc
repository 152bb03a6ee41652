// `distsetup config show`: every key with its effective value and, with --origin, where the value comes from.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/run_source.h"

namespace distsetup {
namespace {

std::string origin(const Setting* setting) {
  if (setting == nullptr) return "built-in";
  const Location& at = setting->at;
  return at.line > 0 ? fmt::format("{}:{}:{}", at.file, at.line, at.column) : at.file;
}

Json show_json(const Spec& spec) {
  Json settings = Json::array();
  for (const SpecKey& key : spec_keys()) {
    const Setting* setting = spec.find(key.path);
    const std::string value = setting == nullptr ? std::string(key.fallback) : setting->text;
    settings.push_back({{"key", key.path}, {"value", value}, {"given", setting != nullptr}, {"origin", origin(setting)}});
  }
  return {{"schema_version", 1}, {"settings", settings}};
}

std::string show_text(const Spec& spec, bool with_origin) {
  size_t key_width = 0, value_width = 0;
  for (const SpecKey& key : spec_keys()) {
    const Setting* setting = spec.find(key.path);
    key_width = std::max(key_width, key.path.size());
    value_width = std::max(value_width, setting == nullptr ? key.fallback.size() : setting->text.size());
  }
  value_width = std::min<size_t>(value_width, 40);
  std::string text;
  for (const SpecKey& key : spec_keys()) {
    const Setting* setting = spec.find(key.path);
    const std::string value = setting == nullptr ? std::string(key.fallback) : setting->text;
    std::string line = fmt::format("{:<{}}  {:<{}}", key.path, key_width, value, with_origin ? value_width : 0);
    if (with_origin) line += "  " + origin(setting);
    text += line + "\n";
  }
  return text;
}

int run_config_show(const Arguments& arguments, const Terminal& terminal) {
  const Result<Spec> spec = read_spec(arguments);
  if (!spec.ok()) return fail(arguments, terminal, spec.diagnostics);
  say_diagnostics(terminal, spec.diagnostics);
  if (arguments.has("json")) return print_result(terminal, dump_json(show_json(*spec)));
  return print_result(terminal, show_text(*spec, arguments.has("origin")));
}

}  // namespace

Command config_show_command() {
  Command command;
  command.name = "config show";
  command.summary = "every key with its value, and where the value comes from";
  command.positional = "[run.yaml]";
  command.max_positionals = 1;
  command.examples = {"distsetup config show run.yaml --origin",
                      "DISTSETUP_STEPS=50 distsetup config show run.yaml --origin --nodes 2"};
  command.notes = "Flags win over DISTSETUP_ variables, these over the run file, this over what is built in.";
  command.flags = {
      {"origin", {}, FlagKind::kSwitch, "", "where each value comes from: command line, variable, file:line:column, built-in", 0},
      config_flag()};
  for (Flag& flag : layer_flags()) command.flags.push_back(std::move(flag));
  command.run_keys = kAllRunKeys;
  command.run = run_config_show;
  return command;
}

}  // namespace distsetup
