// `distsetup lint`: files that people have, against what the tools make of them. Findings are the result (standard output); what --fix
// changed is talk.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/deliver/deliver.h"
#include "cli/line/output.h"
#include "cli/settings/named_file.h"
#include "cli/settings/run_source.h"
#include "codegen/lint/lint.h"
#include "codegen/shell/quote.h"
#include "codegen/tables/kind.h"
#include "model/count.h"
#include "plan/plan.h"
#include "plan/plan_json.h"
#include "planner/resolve/named_model.h"

namespace distsetup {
namespace {

const std::vector<std::string> kConsumers = {"deepspeed", "hf", "accelerate", "lightning"};

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// "" of what is no file, or one too large for a program that people write.
std::string text_of_program(const std::string& path) {
  constexpr uintmax_t kMostBytes = 1'000'000;
  std::error_code ignored;
  const bool is_one = std::filesystem::is_regular_file(path, ignored) && std::filesystem::file_size(path, ignored) <= kMostBytes;
  const Result<std::string> text = is_one ? read_file(path) : Result<std::string>(std::string());
  return text.ok() ? *text : "";
}

std::string find_script(const std::string& name, const std::string& from) {
  const std::optional<NamedFile> found = find_named_file(name, from);
  return found ? found->path : "";
}

// "torchtitan==0.3.0,openrlhf==0.10"
Diagnostics read_tools(const std::string& text, std::map<std::string, std::string>& tools) {
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, comma - at);
    at = comma + 1;
    const size_t equals = one.find('=');
    const size_t version = one.find_first_not_of('=', equals);
    if (equals == std::string::npos || equals == 0 || version == std::string::npos) {
      return {error(code::kUnknownValue, command_line(), fmt::format("'--tools' has '{}', expected package==version", one),
                    "such as --tools torchtitan==0.2.2,torch==2.9")};
    }
    if (one[version] < '0' || one[version] > '9') {
      return {error(code::kUnknownValue, command_line(), fmt::format("'--tools' has '{}', expected a release behind ==", one),
                    "such as --tools torchtitan==0.2.2,torch==2.9")};
    }
    tools[one.substr(0, equals)] = one.substr(version);
  }
  return {};
}

Result<LintContext> lint_context(const Arguments& arguments) {
  LintContext context;
  Diagnostics diagnostics;
  const Result<int64_t> nodes = int_flag(arguments, "nodes", 0, 1, 1 << 20), gpus = int_flag(arguments, "gpus", 0, 1, 1 << 10);
  const Result<std::string> consumer = choice_flag(arguments, "consumer", "", kConsumers);
  append(diagnostics, nodes.diagnostics);
  append(diagnostics, gpus.diagnostics);
  append(diagnostics, consumer.diagnostics);
  append(diagnostics, read_tools(arguments.text("tools"), context.tools));
  context.as = arguments.text("as");
  append(diagnostics, check_kind_name(context.as));
  const Result<Session> session = open_session(arguments);
  append(diagnostics, session.diagnostics);
  if (session.ok() && arguments.has("gpu")) {
    const Result<GpuChoice> gpu = find_gpu(session->presets, arguments.text("gpu"), command_line());
    append(diagnostics, gpu.diagnostics);
    if (gpu.ok()) {
      context.gpu = gpu->gpu.label;
      context.gpu_memory_bytes = gpu->gpu.usable_memory_bytes;
      context.gpu_has_bf16 = gpu->gpu.peak_bf16_flops_per_s > 0;
    }
  }
  if (session.ok() && arguments.has("model")) {
    const Result<Geometry> model = named_model(session->presets, arguments.text("model"), command_line());
    append(diagnostics, model.diagnostics);
    if (model.ok()) {
      context.layer_class = model->layer_class;
      context.model_parameters = count_parameters(*model).total;
    }
  }
  if (has_error(diagnostics)) return diagnostics;
  context.nodes = *nodes;
  context.gpus_per_node = *gpus;
  context.consumer = *consumer;
  context.is_directory = is_folder;
  context.text_of_program = text_of_program;
  context.find_script = find_script;
  return {std::move(context), std::move(diagnostics)};
}

std::string_view when_it_bites(const std::string& bites) {
  if (bites == "parse") return "at parse";
  if (bites == "start") return "at start";
  return bites == "run" ? "while it runs" : "silently";
}

Json finding_json(const LintReport& report, const LintFinding& finding) {
  Json json = to_json(Diagnostics{finding.diagnostic})[0];
  json["bites"] = finding.bites;
  json["file_kind"] = report.files[finding.file].kind;
  json["fixable"] = !finding.edits.empty();
  return json;
}

struct Counts {
  size_t errors = 0, warnings = 0, notes = 0;
};

Counts count(const Diagnostics& diagnostics) {
  Counts n;
  for (const Diagnostic& one : diagnostics) {
    n.errors += one.severity == Severity::kError ? 1 : 0;
    n.warnings += one.severity == Severity::kWarning ? 1 : 0;
    n.notes += one.severity == Severity::kNote ? 1 : 0;
  }
  return n;
}

std::string counted(size_t n, std::string_view what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

// The safe fixes of every file, in `files`: the files that changed, whole.
Artifacts fix(const Terminal& terminal, const LintContext& context, std::string_view done, std::vector<LintFile>& files) {
  const LintReport report = lint_files(files, context);
  Artifacts changed;
  for (size_t i = 0; i < report.files.size(); ++i) {
    const auto file = std::find_if(files.begin(), files.end(), [&](const LintFile& one) { return one.path == report.files[i].path; });
    if (file == files.end()) continue;  // a script that one of them starts: it was not given
    std::vector<const LintFinding*> applied;
    std::string text = apply_fixes(report, i, file->text, applied);
    if (applied.empty()) continue;
    file->text = std::move(text);
    changed.push_back({file->path, file->text, false});
    for (const LintFinding* one : applied) {
      mention(terminal, fmt::format("{} {}:{}: {} {}\n", done, file->path, one->diagnostic.location.line, one->diagnostic.code,
                                    one->diagnostic.help));
    }
  }
  return changed;
}

Diagnostics write_back(const Artifacts& changed) {
  Diagnostics diagnostics;
  for (const Artifact& one : changed) append(diagnostics, write_file_atomic(one.path, one.text, Overwrite::kForce).diagnostics);
  return diagnostics;
}

constexpr char kStandardInput[] = "standard input";

// `-` is standard input.
Result<std::vector<LintFile>> read_files_to_lint(const Arguments& arguments) {
  std::vector<LintFile> files;
  Diagnostics diagnostics;
  for (const std::string& path : arguments.positionals) {
    const bool is_input = path == "-";
    if (is_input && arguments.has("fix"))
      diagnostics.push_back(error(code::kConflict, command_line(), "'--fix' writes files, and '-' is standard input", "name a file"));
    const std::string name = is_input ? kStandardInput : path;
    if (std::any_of(files.begin(), files.end(), [&name](const LintFile& one) { return one.path == name; })) continue;
    Result<std::string> text = read_file(is_input ? "/dev/stdin" : path);
    append(diagnostics, text.diagnostics);
    if (!text.ok() && is_folder(path)) diagnostics.back().help = fmt::format("name its files: distsetup lint {}/*", quote_shell(path));
    if (text.ok()) files.push_back({name, std::move(*text)});
  }
  if (has_error(diagnostics)) return diagnostics;
  return files;
}

int run_lint(const Arguments& arguments, const Terminal& terminal) {
  const Result<LintContext> context = lint_context(arguments);
  if (!context.ok()) return fail(arguments, terminal, context.diagnostics);
  Result<std::vector<LintFile>> files = read_files_to_lint(arguments);
  if (!files.ok()) return fail(arguments, terminal, files.diagnostics);
  if (arguments.has("fix")) {
    const bool is_trial = arguments.has("dry-run");
    const Artifacts changed = fix(terminal, *context, is_trial ? "would fix" : "fixed", *files);
    if (is_trial) {
      Delivery trial;
      trial.files = changed;
      return deliver(arguments, terminal, std::move(trial));
    }
    if (const Diagnostics failed = write_back(changed); has_error(failed)) return fail(arguments, terminal, failed);
  } else if (const Diagnostics idle = refuse_idle(arguments, {"dry-run"}, "with --fix"); !idle.empty()) {
    return fail(arguments, terminal, idle);
  }

  const LintReport report = lint_files(*files, *context);
  Diagnostics said;
  Json findings = Json::array(), kinds = Json::array();
  size_t num_fixable = 0;
  for (const LintFinding& one : report.findings) {
    said.push_back(one.diagnostic);
    said.back().message += fmt::format(" (bites {})", when_it_bites(one.bites));
    findings.push_back(finding_json(report, one));
    num_fixable += one.edits.empty() ? 0 : 1;
  }
  append(said, report.unreadable);
  const bool has_deepspeed = std::any_of(report.files.begin(), report.files.end(),
                                         [](const LintReport::File& one) { return one.kind == file_kind::kDeepspeed; });
  if (arguments.has("consumer") && !has_deepspeed)
    said.push_back(
        note(code::kNoForm, command_line(), "--consumer says who reads a DeepSpeed JSON, and none is here", "leave it away"));
  for (const LintReport::File& one : report.files) {
    kinds.push_back({{"path", one.path}, {"kind", one.kind}, {"describes", one.says}});
    if (!one.from.empty()) kinds.back()["started_by"] = one.from;
    mention(terminal, fmt::format("{}: {}{}\n", one.path, one.says,
                                  one.from.empty() ? "" : (one.is_sourced ? ", sourced by " : ", started by ") + one.from));
  }
  const Counts n = count(said);
  const bool fails = n.errors > 0 || (arguments.has("strict") && n.warnings > 0);
  const int code = fails ? static_cast<int>(kConfigInvalid) : static_cast<int>(kDone);
  if (arguments.has("json")) {
    const Json json = {
        {"schema_version", 1}, {"files", kinds},         {"findings", findings}, {"diagnostics", to_json(report.unreadable)},
        {"errors", n.errors},  {"warnings", n.warnings}, {"notes", n.notes}};
    return print_result(terminal, dump_json(json), code);
  }
  const int printed = print_result(terminal, format_diagnostics(said, terminal.out.colour), code);
  mention(terminal, fmt::format("{}, {}, {}\n", counted(n.errors, "error"), counted(n.warnings, "warning"), counted(n.notes, "note")));
  if (num_fixable > 0) suggest_next(terminal, fmt::format("distsetup lint --fix {}", join_command(arguments.positionals)));
  return printed;
}

}  // namespace

Command lint_command() {
  Command command;
  command.summary = "mistakes in the files you have: keys that are ignored in silence, scripts that hang";
  command.positional = "FILE...";
  command.min_positionals = 1;
  command.max_positionals = 1000;
  command.examples = {"distsetup lint ds_config.json job.sbatch", "distsetup lint accelerate.yaml --nodes 2 --gpus 8",
                      "distsetup lint job.sbatch --fix --dry-run", "distsetup explain SL003"};
  command.notes =
      "Takes DeepSpeed JSON, accelerate YAML, TrainingArguments, torchtitan TOML, Axolotl, LLaMA-Factory, Lightning and Automodel "
      "YAML, "
      "Megatron arguments, job scripts, shell scripts and command lines, hostfiles, Kubernetes manifests, SkyPilot tasks and "
      "plan.json, and "
      "tells them apart by what they say; - is standard input. Files named together are one set-up. Each finding says when it bites: "
      "at parse, at start, "
      "while it "
      "runs, or silently. Exit code 3: there are errors, with --strict also warnings.";
  command.flags = {
      {"strict", {}, FlagKind::kSwitch, "", "warnings fail too (exit code 3)", 0},
      {"fix", {}, FlagKind::kSwitch, "", "make the fixes that change nothing else, in the files", 0},
      dry_run_flag(),
      {"as",
       {"kind"},
       FlagKind::kValue,
       "KIND",
       "what the files are, when they do not say: deepspeed, accelerate, sbatch, …",
       0,
       built_in_kinds().lint_names()},
      {"consumer", {}, FlagKind::kValue, "WHO", "who reads the DeepSpeed JSON: deepspeed, hf, accelerate or lightning", 0, kConsumers},
      {"nodes", {}, FlagKind::kValue, "N", "nodes of the job, when no file says it", 0},
      {"gpus", {"gpus-per-node"}, FlagKind::kValue, "N", "GPUs per node, when no file says it", 0},
      {"gpu", {}, FlagKind::kValue, "NAME", "the GPU, for rules about memory and bf16", 0},
      {"model", {}, FlagKind::kValue, "NAME", "the model, for rules about classes and size", 0},
      {"tools", {}, FlagKind::kValue, "NAME==VERSION,…", "releases in use, when no file pins them", 0},
      presets_flag()};
  command.run = run_lint;
  return command;
}

}  // namespace distsetup
