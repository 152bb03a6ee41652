// `distsetup config show`: every key with its effective value and, with --origin, where the value comes from; with a site file also
// what it says of jobs, as site.KEY.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/names.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/run_source.h"
#include "cli/settings/trainer_flags.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

struct Row {
  std::string key, value, origin;
  bool is_given = false;
};

std::string place(const Location& at) { return at.line > 0 ? fmt::format("{}:{}:{}", at.file, at.line, at.column) : at.file; }

std::vector<Row> run_rows(const Spec& spec) {
  std::vector<Row> rows;
  for (const SpecKey& key : spec_keys()) {
    const Setting* setting = spec.find(key.path);
    const bool is_given = setting != nullptr;
    rows.push_back({std::string(key.path), is_given ? setting->text : std::string(key.fallback),
                    is_given ? place(setting->at) : "built-in", is_given});
  }
  return rows;
}

// The value at a key of site.yaml, '.' between levels; nullptr: it is not there.
const Value* site_value(const Value& site, std::string_view key) {
  const size_t dot = key.find('.');
  for (const auto& [name, value] : site.entries) {
    if (!same_name(name, key.substr(0, dot))) continue;
    return dot == std::string_view::npos ? &value : site_value(value, key.substr(dot + 1));
  }
  return nullptr;
}

std::string site_text(const Value& value) {
  if (value.kind != Value::Kind::kList) return value.text;
  std::string out;
  for (const Value& item : value.items) out += (out.empty() ? "" : ",") + item.text;
  return out;
}

// What the site file says of jobs, flags of a job over it. Errors: those of reading it for a job.
Result<std::vector<Row>> site_rows(const Arguments& arguments, const Session& session, const std::string& path) {
  const Result<JobOptions> checked = job_options(arguments, session, path);
  if (!checked.ok()) return checked.diagnostics;
  const Value site = path.empty() ? Value{} : site_file(session, path)->value;
  std::vector<Row> rows;
  for (const JobSetting* setting : site_keys()) {
    const std::string key = "site." + setting->site;
    const std::optional<std::string> flag = setting->flag.empty() ? std::nullopt : arguments.find(setting->flag);
    if (flag.has_value()) {
      rows.push_back({key, setting->type == JobSettingType::kSwitch ? "true" : *flag, place(command_line()), true});
    } else if (const Value* value = site_value(site, setting->site)) {
      rows.push_back({key, site_text(*value), place(value->location), true});
    }
  }
  return rows;
}

Json show_json(const std::vector<Row>& rows) {
  Json settings = Json::array();
  for (const Row& row : rows)
    settings.push_back({{"key", row.key}, {"value", row.value}, {"given", row.is_given}, {"origin", row.origin}});
  return {{"schema_version", 1}, {"settings", settings}};
}

std::string show_text(const std::vector<Row>& rows, bool with_origin) {
  size_t key_width = 0, value_width = 0;
  for (const Row& row : rows) {
    key_width = std::max(key_width, row.key.size());
    value_width = std::max(value_width, row.value.size());
  }
  value_width = std::min<size_t>(value_width, 40);
  std::string text;
  for (const Row& row : rows) {
    std::string line = fmt::format("{:<{}}  {:<{}}", row.key, key_width, row.value, with_origin ? value_width : 0);
    if (with_origin) line += "  " + row.origin;
    text += line + "\n";
  }
  return text;
}

int run_config_show(const Arguments& given, const Terminal& terminal) {
  const Result<Session> session = open_session(given);
  if (!session.ok()) return fail(given, terminal, session.diagnostics);
  const Result<Arguments> whole = with_trainer_flags(given, *session);
  if (!whole.ok()) return fail(given, terminal, whole.diagnostics);
  const Arguments& arguments = *whole;
  const Result<Spec> spec = read_spec(arguments, *session);
  if (!spec.ok()) return fail(arguments, terminal, spec.diagnostics);
  const Result<std::vector<Row>> of_site = site_rows(arguments, *session, spec->text("launch.site").value_or(""));
  if (!of_site.ok()) return fail(arguments, terminal, of_site.diagnostics);
  say_diagnostics(terminal, spec.diagnostics);
  std::vector<Row> rows = run_rows(*spec);
  rows.insert(rows.end(), of_site->begin(), of_site->end());
  if (arguments.has("json")) return print_result(terminal, dump_json(show_json(rows)));
  return print_result(terminal, show_text(rows, arguments.has("origin")));
}

}  // namespace

Command config_show_command() {
  Command command;
  command.summary = "every key with its value, and where the value comes from";
  command.positional = "[run.yaml]";
  command.max_positionals = 1;
  command.examples = {"distsetup config show run.yaml --origin",
                      "DISTSETUP_STEPS=50 distsetup config show run.yaml --origin --nodes 2",
                      "distsetup config show --site site.yaml --origin --partition gpu",
                      "distsetup config show config.yaml --origin -- --stage stage1 --fsdp-config multi_node_fsdp --mode production"};
  command.notes = "Strongest first: " + precedence() +
                  "; below them what other tools assume, and what is built in. With --site FILE what the site says "
                  "of jobs follows as site.KEY, flags of a job over it. Words behind -- are flags of a training script, as of plan.";
  command.flags = {
      {"origin", {}, FlagKind::kSwitch, "", "where each value comes from: command line, variable, file:line:column, built-in", 0},
      config_flag()};
  for (const Flag& flag : job_flags()) {
    const auto& settings = job_settings();
    const bool is_of_site = std::any_of(settings.begin(), settings.end(), [&flag](const JobSetting& setting) {
      return setting.flag == flag.name && !setting.site.empty();
    });
    if (is_of_site) command.flags.push_back(flag);
  }
  for (Flag& flag : layer_flags()) command.flags.push_back(std::move(flag));
  command.run_keys = kAllRunKeys;
  command.after_dashes = AfterDashes::kTrainerFlags;
  command.run = run_config_show;
  return command;
}

}  // namespace distsetup
