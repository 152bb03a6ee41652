// `distsetup explain`: a page of the store, a key of the run file, or with settings of a run a decision of its plan.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "cli/commands/commands.h"
#include "cli/commands/explanations.h"
#include "cli/line/help.h"
#include "cli/line/output.h"
#include "cli/settings/decision.h"
#include "cli/settings/run_source.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

std::string index_page() {
  std::string text;
  for (const PageGroup& group : explanations()) {
    if (!group.heading.empty()) text += fmt::format("\n{}\n", group.heading);
    for (const Page& page : group.pages) text += fmt::format("{:<7} {}\n", page.name, page.title);
  }
  return text + "\ndistsetup explain DS0101, distsetup explain SL003, distsetup explain train.steps\n";
}

Json index_json() {
  Json codes = Json::array();
  for (const PageGroup& group : explanations()) {
    for (const Page& page : group.pages) codes.push_back({{"code", page.name}, {"title", page.title}});
  }
  return {{"schema_version", 1}, {"codes", codes}};
}

Json page_json(const Page& page) {
  Json json = {{"schema_version", 1}, {"code", page.name},   {"title", page.title},
               {"why", page.why},     {"wrong", page.wrong}, {"right", page.right}};
  for (const auto& [name, text] : page.facts) json[name] = text;
  return json;
}

std::vector<std::string> names_to_explain() {
  std::vector<std::string> names;
  for (const PageGroup& group : explanations()) {
    for (const Page& page : group.pages) names.push_back(page.name);
  }
  for (const SpecKey& one : spec_keys()) names.emplace_back(one.path);
  return names;
}

int run_explain(const Arguments& arguments, const Terminal& terminal) {
  if (!arguments.run_flags.empty() || arguments.has("config")) {
    if (arguments.positionals.size() == 1 && is_decision(arguments.positionals[0])) {
      const Result<Session> session = open_session(arguments);
      if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
      return explain_decision(arguments, *session, terminal, arguments.positionals[0]);
    }
    return fail(arguments, terminal,
                {error(code::kUnknownValue, command_line(), "settings of a run, and no decision of it to explain",
                       fmt::format("one of: {}", fmt::join(decision_names(), ", ")))});
  }
  const bool as_json = arguments.has("json");
  if (arguments.positionals.empty()) return print_result(terminal, as_json ? dump_json(index_json()) : index_page());
  const std::string wanted = fmt::format("{}", fmt::join(arguments.positionals, " "));
  const SpecKey* key = find_spec_key(wanted);
  if (key == nullptr) key = find_spec_flag(wanted);
  const Page* page = find_page(wanted);
  if (page == nullptr && key == nullptr) page = find_page_with(wanted);
  if (page != nullptr) {  // a word of a plan may be a setting too
    const std::string setting = key != nullptr ? "\n" + key_help(*key) : "";
    return print_result(terminal, as_json ? dump_json(page_json(*page)) : page_text(*page, terminal.out.width_columns) + setting);
  }
  if (key != nullptr) {
    const Json json = {{"schema_version", 1}, {"key", key->path}, {"text", key_help(*key)}};
    return print_result(terminal, as_json ? dump_json(json) : key_help(*key));
  }
  const std::string nearest = nearest_name(wanted, names_to_explain());
  return fail(arguments, terminal,
              {error(code::kUnknownValue, command_line(),
                     fmt::format("nothing is called '{}', expected a code such as DS0101, a key, or a word of a plan", wanted),
                     nearest.empty() ? "distsetup explain lists the codes, distsetup help keys the keys"
                                     : fmt::format("did you mean '{}'", nearest))});
}

}  // namespace

Command explain_command() {
  Command command;
  command.summary = "what a message, a key or a word of a plan means";
  command.positional = "[CODE|KEY|WORD]";
  command.positional_values = names_to_explain;
  command.max_positionals = 6;  // a word of a plan may be several
  command.examples = {"distsetup explain DS0101", "distsetup explain parallel.sharding", "distsetup explain sequence-length"};
  command.flags.push_back(config_flag());
  command.flags.push_back(goal_flag());
  command.flags.push_back(presets_flag());
  for (Flag& flag : layer_flags()) command.flags.push_back(std::move(flag));
  command.run_keys = kAllRunKeys;
  command.run = run_explain;
  return command;
}

}  // namespace distsetup
