// `distsetup explain`: a diagnostic code or a key of the run file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "cli/commands/commands.h"
#include "cli/commands/explain_text.h"
#include "cli/line/help.h"
#include "cli/line/output.h"
#include "cli/settings/decision.h"
#include "cli/settings/run_source.h"
#include "codegen/lint/lint.h"

namespace distsetup {
namespace {

std::string indented(std::string_view text) {
  std::string out = "  ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "  ";
  }
  return out;
}

// Paragraph at the width of the terminal.
std::string paragraph(std::string_view text, size_t width) {
  std::string out;
  size_t column = 0;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    if (column > 0 && column + 1 + space > width) {
      out += "\n";
      column = 0;
    }
    out += column > 0 ? " " : "";
    out += text.substr(0, space);
    column += space + (column > 0 ? 1 : 0);
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return out;
}

std::string page(const Explanation& e, size_t width) {
  std::string text = fmt::format("{}: {}\n\n{}\n", e.code, e.title, paragraph(e.why, width));
  if (!e.wrong.empty()) text += fmt::format("\nwrong\n{}\n", indented(e.wrong));
  if (!e.right.empty()) text += fmt::format("\nright\n{}\n", indented(e.right));
  return text;
}

std::string index_page() {
  std::string text;
  for (const Explanation& e : explanations()) text += fmt::format("{}  {}\n", e.code, e.title);
  text += "\nof `distsetup lint`\n";
  for (const LintRule& rule : lint_rules()) text += fmt::format("{:<7} {}\n", rule.code, rule.title);
  return text + "\ndistsetup explain DS0101, distsetup explain SL003, distsetup explain train.steps\n";
}

std::string example_text(const LintExample& example) {
  std::string text;
  for (const LintFile& file : example.files) text += (example.files.size() > 1 ? fmt::format("# {}\n", file.path) : "") + file.text;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string rule_page(const LintRule& rule, size_t width) {
  const std::string_view severity = rule.severity == Severity::kError     ? "error"
                                    : rule.severity == Severity::kWarning ? "warning"
                                                                          : "note";
  const std::string_view bites = rule.bites == "parse"   ? "when the tool reads the file"
                                 : rule.bites == "start" ? "when training starts"
                                 : rule.bites == "run"   ? "while it runs"
                                                         : "silently: nothing is said";
  return fmt::format("{}: {}\n\n{}\n\n{} · bites {}\nfix: {}\nsource: {}\n\nwrong\n{}\n\nright\n{}\n", rule.code, rule.title,
                     paragraph(rule.why, width), severity, bites, rule.fix, rule.source, indented(example_text(rule.bad)),
                     indented(example_text(rule.good)));
}

Json rule_json(const LintRule& rule) {
  return {{"schema_version", 1},
          {"code", rule.code},
          {"title", rule.title},
          {"why", rule.why},
          {"bites", rule.bites},
          {"fix", rule.fix},
          {"source", rule.source},
          {"wrong", example_text(rule.bad)},
          {"right", example_text(rule.good)}};
}

std::vector<std::string> names_to_explain() {
  std::vector<std::string> names;
  for (const Explanation& e : explanations()) names.emplace_back(e.code);
  for (const LintRule& rule : lint_rules()) names.push_back(rule.code);
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
  if (arguments.positionals.empty()) {
    if (!as_json) return print_result(terminal, index_page());
    Json codes = Json::array();
    for (const Explanation& e : explanations()) codes.push_back({{"code", e.code}, {"title", e.title}});
    for (const LintRule& rule : lint_rules()) codes.push_back({{"code", rule.code}, {"title", rule.title}});
    return print_result(terminal, dump_json({{"schema_version", 1}, {"codes", codes}}));
  }
  const std::string& wanted = arguments.positionals[0];
  for (const Explanation& e : explanations()) {
    if (!same_name(e.code, wanted)) continue;
    const Json json = {{"schema_version", 1}, {"code", e.code},   {"title", e.title},
                       {"why", e.why},        {"wrong", e.wrong}, {"right", e.right}};
    return print_result(terminal, as_json ? dump_json(json) : page(e, static_cast<size_t>(terminal.out.width_columns)));
  }
  for (const LintRule& rule : lint_rules()) {
    if (!same_name(rule.code, wanted)) continue;
    return print_result(terminal,
                        as_json ? dump_json(rule_json(rule)) : rule_page(rule, static_cast<size_t>(terminal.out.width_columns)));
  }
  const SpecKey* key = find_spec_key(wanted);
  if (key == nullptr) key = find_spec_flag(wanted);
  if (key != nullptr) {
    const Json json = {{"schema_version", 1}, {"key", key->path}, {"text", key_help(*key)}};
    return print_result(terminal, as_json ? dump_json(json) : key_help(*key));
  }
  const std::string nearest = nearest_name(wanted, names_to_explain());
  return fail(arguments, terminal,
              {error(code::kUnknownValue, command_line(),
                     fmt::format("nothing is called '{}', expected a code such as DS0101 or a key", wanted),
                     nearest.empty() ? "distsetup explain lists the codes, distsetup help keys the keys"
                                     : fmt::format("did you mean '{}'", nearest))});
}

}  // namespace

Command explain_command() {
  Command command;
  command.name = "explain";
  command.summary = "what a message or a key means, with a wrong and a right example";
  command.positional = "[CODE|KEY]";
  command.positional_values = names_to_explain;
  command.max_positionals = 1;
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
