// `distsetup validate`: may these files be used as they are? It has no rules of its own. A run file is read, resolved and planned as
// `plan` does it, a site file as `emit` reads it, a plan as `launch` reads it; files of other tools are held against lint's rules, and
// those that lint has no rules for against the table that reads them, where an unknown key, a value that the key does not take and two
// keys that disagree are errors. A key that is known and has no place in a plan is no mistake: it is counted and, with --json, named.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/names.h"
#include "base/quantity.h"
#include "base/value_yaml.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/named_file.h"
#include "cli/settings/read_files.h"
#include "cli/settings/run_source.h"
#include "codegen/job/site.h"
#include "codegen/lint/lint.h"
#include "codegen/read/read.h"
#include "plan/plan.h"
#include "plan/plan_json.h"
#include "planner/search/goal.h"

namespace distsetup {
namespace {

struct Checked {
  std::string path, kind, says;  // kind: "run"
  Diagnostics diagnostics;
  std::vector<LostKey> not_supported;
  bool fits = true;
};

std::string plural(size_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

void plan_it(const Arguments& arguments, const Session& session, const Spec& spec, Checked& checked) {
  const Result<Problem> problem = read_problem(arguments, session, spec);
  append(checked.diagnostics, problem.diagnostics);
  if (!problem.ok()) return;
  const Result<Plan> plan = make_plan_for_goal(*problem);
  append(checked.diagnostics, plan.diagnostics);
  if (!plan.ok()) return;
  checked.fits = plan->verdict != Verdict::kDoesNotFit;
  checked.says += fmt::format("; {} of {} per GPU: {}", format_gib(plan->memory.device_bytes), format_gib(plan->memory.capacity_bytes),
                              name(plan->verdict));
}

void check_run(const Arguments& arguments, const Session& session, Checked& checked) {
  Arguments one = arguments;
  one.positionals = {checked.path};
  const Result<Spec> spec = read_spec(one, session);
  append(checked.diagnostics, spec.diagnostics);
  checked.kind = "run";
  checked.says = "run file";
  if (!spec.ok()) return;
  checked.says += ", " + plural(spec->settings.size() + (spec->model.has_value() ? 1 : 0), "setting");
  plan_it(arguments, session, *spec, checked);
}

void check_site(const std::string& text, Checked& checked) {
  JobOptions options;
  checked.kind = "site";
  checked.says = "site file";
  const Result<Value> root = parse_yaml(text, checked.path);
  append(checked.diagnostics, root.diagnostics);
  if (root.ok()) append(checked.diagnostics, apply_site(options, *root, text, checked.path));
}

void check_plan(const std::string& text, Checked& checked) {
  checked.kind = "plan";
  checked.says = "plan";
  const Result<Plan> plan = plan_from_json(text, checked.path);
  append(checked.diagnostics, plan.diagnostics);
  if (!plan.ok()) return;
  checked.fits = plan->verdict != Verdict::kDoesNotFit;
  checked.says += fmt::format(" of {}: {}", plan->model.name, name(plan->verdict));
}

ReadChoices choices_of(const Arguments& arguments) { return {arguments.text("stage"), arguments.text("distributed"), {}}; }

void check_foreign(const Arguments& arguments, const Session& session, const Result<std::vector<Reading>>& readings,
                   Checked& checked) {
  append(checked.diagnostics, readings.diagnostics);
  if (!readings.ok()) return;
  for (const Reading& reading : *readings) {
    checked.kind = reading.table.substr(0, reading.table.find('/'));
    checked.says += (checked.says.empty() ? "" : ", ") + reading.tool;
    for (const LostKey& lost : reading.lost) {
      if (lost.why == LostKey::Why::kNotSupported) {
        checked.not_supported.push_back(lost);
      } else {
        checked.diagnostics.push_back(mistake_of(lost));
      }
    }
    for (const Complaint& complaint : reading.complaints) checked.diagnostics.push_back(complaint.diagnostic);
  }
  const Result<ReadFields> fields = merge_readings(*readings);
  append(checked.diagnostics, fields.diagnostics);
  if (!fields.ok()) return;
  const Result<ForeignSpec> read = spec_of_fields(*fields, session.presets, {});
  append(checked.diagnostics, read.diagnostics);
  if (!read.ok()) return;
  checked.says += ", " + plural(read->given.settings.size(), "setting");
  if (!checked.not_supported.empty())
    checked.says += fmt::format(", {} not supported here", plural(checked.not_supported.size(), "key"));
  const Spec spec = merge(read->assumed, read->given);
  if (has_error(checked.diagnostics) || (spec.find("model") == nullptr && !spec.model.has_value())) return;
  Checked planned;
  plan_it(arguments, session, spec, planned);
  for (Diagnostic& one : planned.diagnostics) {  // a model that only the user's machine has is no mistake of the file
    if (one.code == code::kUnknownModel) one.severity = Severity::kNote;
    checked.diagnostics.push_back(std::move(one));
  }
  checked.fits = planned.fits;
  checked.says += planned.says;
}

// True when the file is one of ours, which then is checked. `version: 1` alone, or with keys that nobody knows, is a site file too.
bool check_own(const Arguments& arguments, const Session& session, const foreign::Document& document, Checked& checked) {
  if (has_error(document.broken) || document.root.kind != Value::Kind::kMap) return false;
  const Value* version = document.root.find("version");
  const bool is_unknown = document.kind == nullptr && document.form == foreign::TextForm::kYaml;
  if (document.is(file_kind::kPlan)) {
    check_plan(document.text, checked);
  } else if (document.is(file_kind::kRun)) {
    check_run(arguments, session, checked);
  } else if (document.is(file_kind::kSite) || (is_unknown && version != nullptr && version->text == "1")) {
    check_site(document.text, checked);
  } else {
    return false;
  }
  return true;
}

// Dialects that lint has no rules for: the table is the check.
bool is_checked_by_table(const std::string& table) {
  for (const char* folder : {"fine-tuning/", "training-stages/", "llama-stack-provider/", "llama-stack-inline-provider/"}) {
    if (table.compare(0, std::char_traits<char>::length(folder), folder) == 0) return true;
  }
  return false;
}

bool reads_by_table(const Arguments& arguments, const Result<std::vector<Reading>>& readings) {
  // A stage that is not there, too, is told by the table.
  if (!readings.ok()) return arguments.has("stage");
  return std::any_of(readings->begin(), readings->end(), [](const Reading& one) { return is_checked_by_table(one.table); });
}

void check_together(const Arguments& arguments, const Session& session, const std::vector<foreign::DocumentPointer>& documents,
                    std::vector<Checked>& all) {
  const LintReport report = lint_documents(documents, {});
  for (const foreign::DocumentPointer& document : documents) {
    Checked checked;
    checked.path = document->path;
    const auto known =
        std::find_if(report.files.begin(), report.files.end(), [&checked](const auto& one) { return one.path == checked.path; });
    const Result<std::vector<Reading>> readings = read_document(session.templates, *document, "", choices_of(arguments));
    const bool by_table = known == report.files.end() || reads_by_table(arguments, readings);
    if (by_table) check_foreign(arguments, session, readings, checked);
    if (known != report.files.end() && (!by_table || known->kind == "llama-stack")) {
      if (!by_table) checked.kind = known->kind;
      if (!by_table) checked.says = known->says;
      for (const LintFinding& one : report.findings) {
        if (&report.files[one.file] == &*known) checked.diagnostics.push_back(one.diagnostic);
      }
    }
    all.push_back(std::move(checked));
  }
}

Json checked_json(const Checked& one) {
  Json keys = Json::array();
  for (const LostKey& lost : one.not_supported)
    keys.push_back({{"key", lost.key}, {"value", lost.text}, {"line", lost.at.line}, {"reason", lost.reason}});
  return {{"path", one.path}, {"kind", one.kind}, {"valid", !has_error(one.diagnostics)}, {"fits", one.fits}, {"not_supported", keys}};
}

int run_validate(const Arguments& arguments, const Terminal& terminal) {
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  std::vector<Checked> all;
  std::vector<foreign::DocumentPointer> others;
  for (const std::string& path : arguments.positionals) {
    Checked checked;
    checked.path = path;
    const Result<std::string> text = read_file(path);
    append(checked.diagnostics, text.diagnostics);
    const Result<foreign::DocumentPointer> document =
        text.ok() ? foreign::parse_document(session->templates, path, *text, {}, read_beside(path))
                  : Result<foreign::DocumentPointer>(Diagnostics{});
    append(checked.diagnostics, document.diagnostics);
    if (!document.ok() || check_own(arguments, *session, **document, checked)) {
      all.push_back(std::move(checked));
    } else {
      others.push_back(*document);
    }
  }
  check_together(arguments, *session, others, all);
  const auto place = [&arguments](const Checked& one) {
    return std::find(arguments.positionals.begin(), arguments.positionals.end(), one.path);
  };
  std::stable_sort(all.begin(), all.end(), [&place](const Checked& a, const Checked& b) { return place(a) < place(b); });

  Diagnostics said;
  std::string text;
  Json files = Json::array();
  bool fits = true;
  for (const Checked& one : all) {
    append(said, one.diagnostics);
    files.push_back(checked_json(one));
    fits = fits && one.fits;
    const auto errors = std::count_if(one.diagnostics.begin(), one.diagnostics.end(),
                                      [](const Diagnostic& d) { return d.severity == Severity::kError; });
    text += fmt::format("{}: {}{}{}\n", one.path, errors == 0 ? "valid" : plural(static_cast<size_t>(errors), "error"),
                        one.says.empty() ? "" : ", ", one.says);
  }
  int code = has_error(said) ? exit_code(said) : fits ? kDone : kNothingFits;
  if (arguments.has("strict") && code == kDone &&
      std::any_of(said.begin(), said.end(), [](const Diagnostic& d) { return d.severity == Severity::kWarning; }))
    code = kConfigInvalid;
  if (arguments.has("json"))
    return print_result(terminal, dump_json({{"schema_version", 1}, {"files", files}, {"diagnostics", to_json(said)}}), code);
  say(format_diagnostics(said, terminal.err.colour));
  return print_result(terminal, text, code);
}

}  // namespace

Command validate_command() {
  Command command;
  command.summary = "may these files be used as they are: run files, site files, plans, and files of other tools";
  command.positional = "FILE...";
  command.min_positionals = 1;
  command.max_positionals = 32;
  command.examples = {"distsetup validate run.yaml site.yaml", "distsetup validate config.yaml --stage stage2 --json",
                      "distsetup validate run/plan.json run/ds_config.json run/job.sbatch"};
  command.notes =
      "A run file is planned as `plan` does it; files of other tools are held against the rules of `lint`, or against the table that "
      "`convert` reads them by. Mistakes go to standard error with file, line and column, a line per file to standard output. Exit "
      "code 3: there are errors, 4: what is planned does not fit.";
  command.flags = {{"strict", {}, FlagKind::kSwitch, "", "warnings fail too (exit code 3)", 0}};
  for (Flag& flag : layer_flags()) command.flags.push_back(std::move(flag));
  command.flags.push_back(presets_flag());
  command.flags.push_back(templates_flag());
  command.run_keys = kAllRunKeys;
  command.run = run_validate;
  return command;
}

}  // namespace distsetup
