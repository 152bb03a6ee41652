// `distsetup diff A B`: in which fields two effective plans differ. Either side is a plan.json or a run file.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "plan/plan_json.h"

namespace distsetup {
namespace {

using Leaves = std::map<std::string, Json>;

void collect(const Json& json, const std::string& path, Leaves& out) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) collect(value, path.empty() ? key : path + "." + key, out);
  } else if (json.is_array() && !json.empty() && json[0].is_structured()) {
    for (size_t i = 0; i < json.size(); ++i) collect(json[i], fmt::format("{}[{}]", path, i), out);
  } else {
    out[path] = json;
  }
}

// What follows from the words of the inputs and not from their meaning.
bool is_said_only(const std::string& path) {
  for (const char* prefix : {"inputs_digest", "assumptions", "reasons", "diagnostics", "data.root", "weights.directory",
                             "adapter.directory", "alternatives"}) {
    if (path.compare(0, std::char_traits<char>::length(prefix), prefix) == 0) return true;
  }
  return false;
}

Result<Plan> effective_plan(const Arguments& arguments, const Session& session, const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  const size_t first = text->find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (*text)[first] == '{') return plan_from_json(*text, path);
  Arguments one = arguments;
  one.positionals = {path};
  Result<PlanSource> source = read_or_make_plan(one, session);
  if (!source.ok()) return source.diagnostics;
  return source->plan;
}

std::string shown(const Json* value) {
  if (value == nullptr) return "-";
  return value->is_string() ? value->get<std::string>() : value->dump();
}

int run_diff(const Arguments& arguments, const Terminal& terminal) {
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  Diagnostics diagnostics;
  std::vector<Leaves> sides;
  for (const std::string& path : arguments.positionals) {
    const Result<Plan> plan = effective_plan(arguments, *session, path);
    append(diagnostics, plan.diagnostics);
    if (!plan.ok()) continue;
    Leaves leaves;
    collect(to_json(*plan), "", leaves);
    std::erase_if(leaves, [](const auto& one) { return is_said_only(one.first); });
    sides.push_back(std::move(leaves));
  }
  if (has_error(diagnostics) || sides.size() != 2) return fail(arguments, terminal, diagnostics);
  Leaves all = sides[0];
  all.insert(sides[1].begin(), sides[1].end());
  Json differences = Json::array();
  std::string text;
  size_t width = 0;
  const auto side = [](const Leaves& of, const std::string& path) {
    const auto found = of.find(path);
    return found == of.end() ? nullptr : &found->second;
  };
  for (const auto& entry : all) {
    const Json *a = side(sides[0], entry.first), *b = side(sides[1], entry.first);
    if (a != nullptr && b != nullptr && *a == *b) continue;
    width = std::max(width, entry.first.size());
    differences.push_back({{"field", entry.first}, {"a", a == nullptr ? Json() : *a}, {"b", b == nullptr ? Json() : *b}});
  }
  const int code = differences.empty() ? kDone : kDiffers;
  if (arguments.has("json")) return print_result(terminal, dump_json({{"schema_version", 1}, {"differences", differences}}), code);
  for (const auto& entry : all) {
    const Json *a = side(sides[0], entry.first), *b = side(sides[1], entry.first);
    if (a != nullptr && b != nullptr && *a == *b) continue;
    text += fmt::format("{:<{}}  {} -> {}\n", entry.first, width, shown(a), shown(b));
  }
  if (text.empty()) mention(terminal, "the plans are the same\n");
  return print_result(terminal, text, code);
}

}  // namespace

Command diff_command() {
  Command command;
  command.summary = "in which fields two effective plans differ";
  command.positional = "A B";
  command.min_positionals = 2;
  command.max_positionals = 2;
  command.examples = {"distsetup diff before/plan.json after/plan.json", "distsetup diff run.yaml plan.json --nodes 4"};
  command.notes =
      "A and B are plan.json or run files; flags apply to run files. Exit code 7: they differ. Notes and digests are not compared.";
  command.flags = {presets_flag()};
  command.run_keys = kAllRunKeys;
  command.run = run_diff;
  return command;
}

}  // namespace distsetup
