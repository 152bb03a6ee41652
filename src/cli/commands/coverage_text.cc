#include "cli/commands/coverage_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "codegen/tables/coverage.h"

namespace distsetup {
namespace {

using Columns = std::vector<std::pair<std::string, std::vector<FieldCoverage>>>;

std::string_view letter(Coverage how) {
  switch (how) {
    case Coverage::kEmitted: return "e";
    case Coverage::kRefused: return "r";
    case Coverage::kNotApplicable: return "-";
    case Coverage::kGap: return "?";
  }
  return "?";
}

// One target: a line per field.
std::string one_target(const std::vector<FieldCoverage>& fields) {
  size_t width = 0;
  for (const FieldCoverage& one : fields) width = std::max(width, one.field.size());
  std::string text;
  for (const FieldCoverage& one : fields) {
    text += fmt::format("{:<{}}  {}{}\n", one.field, width, name(one.how), one.reason.empty() ? "" : ": " + one.reason);
  }
  return text;
}

// All targets, as Markdown: fields that every target treats alike share a line at the end.
std::string all_targets(const Columns& columns) {
  std::string text = "| field |", line = "|---|";
  for (size_t i = 0; i < columns.size(); ++i) {
    text += fmt::format(" {} |", i + 1);
    line += "---|";
  }
  text += "\n" + line + "\n";
  std::map<std::string, std::string> alike;  // reason -> fields
  for (size_t row = 0; row < columns.front().second.size(); ++row) {
    const FieldCoverage& first = columns.front().second[row];
    std::string cells;
    bool is_nowhere = true;
    std::string reason;
    for (const auto& [target, fields] : columns) {
      const FieldCoverage& one = fields[row];
      cells += fmt::format(" {} |", letter(one.how));
      is_nowhere = is_nowhere && (one.how == Coverage::kNotApplicable || one.how == Coverage::kEmitted);
      if (one.how == Coverage::kNotApplicable) reason = one.reason;
    }
    const bool is_plan_alone =
        is_nowhere &&
        std::all_of(
            columns.begin(), columns.end(),
            [&](const auto& column) { return column.second[row].how == Coverage::kEmitted || column.second[row].reason == reason; }) &&
        std::none_of(columns.begin(), columns.end(), [&](const auto& column) {
          const std::vector<FieldCoverage>& fields = column.second;
          const bool has_all =
              std::all_of(fields.begin(), fields.end(), [](const FieldCoverage& one) { return one.how == Coverage::kEmitted; });
          return fields[row].how == Coverage::kEmitted && !has_all;
        });
    if (is_plan_alone && !reason.empty()) {
      std::string& fields = alike[reason];
      fields += (fields.empty() ? "`" : ", `") + first.field + "`";
    } else {
      text += fmt::format("| `{}` |{}\n", first.field, cells);
    }
  }
  text += "\ne: emitted. r: refused by name where the plan asks for it. -: not applicable. Targets:";
  for (size_t i = 0; i < columns.size(); ++i) text += fmt::format("{} {} `{}`", i == 0 ? "" : ",", i + 1, columns[i].first);
  text += "\n\nOnly in plan.json, which the bundled trainer reads, and not applicable elsewhere:\n\n";
  for (const auto& [reason, fields] : alike) text += fmt::format("- {}: {}\n", reason, fields);
  return text;
}

}  // namespace

int show_coverage(const Arguments& arguments, const Terminal& terminal) {
  Diagnostics diagnostics;
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  const TemplateSet& templates = session->templates;
  std::vector<std::string> targets = target_names(templates);
  if (arguments.has("target")) targets = {arguments.text("target")};
  Columns columns;
  for (const std::string& target : targets) {
    Result<std::vector<FieldCoverage>> one = target_coverage(templates, target);
    append(diagnostics, one.diagnostics);
    if (one.value) columns.emplace_back(target, std::move(*one));
  }
  if (has_error(diagnostics) || columns.empty()) return fail(arguments, terminal, diagnostics);
  if (arguments.has("json")) {
    Json json = Json::object();
    for (const auto& [target, fields] : columns) {
      Json rows = Json::object();
      for (const FieldCoverage& one : fields) {
        rows[one.field] = {{"how", name(one.how)}};
        if (!one.reason.empty()) rows[one.field]["reason"] = one.reason;
      }
      json[target] = std::move(rows);
    }
    return print_result(terminal, dump_json({{"schema_version", 1}, {"targets", json}}));
  }
  return print_result(terminal, columns.size() == 1 ? one_target(columns.front().second) : all_targets(columns));
}

}  // namespace distsetup
