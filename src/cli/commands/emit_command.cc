// `distsetup emit`: plan.json and the files that run it, into a folder.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/diagnostic_codes.h"
#include "cli/commands/commands.h"
#include "cli/commands/coverage_text.h"
#include "cli/deliver/job_files.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/run_source.h"

namespace distsetup {
namespace {

std::string known_targets() { return fmt::format("{}", fmt::join(target_names(embedded_templates()), ", ")); }

int run_emit(const Arguments& arguments, const Terminal& terminal) {
  if (arguments.has("coverage")) return show_coverage(arguments, terminal);
  Diagnostics missing;
  const bool names_target =
      arguments.has("target") || arguments.has("plan") || !arguments.positionals.empty() || arguments.has("config");
  if (!names_target) {
    missing.push_back(
        error(code::kMissingArgument, command_line(), "no --target, expected one of " + known_targets(), "add --target native"));
  }
  if (!arguments.has("output") && !arguments.has("dry-run")) {
    missing.push_back(
        error(code::kMissingArgument, command_line(), "no --output, expected the folder the files go to", "add --output run"));
  }
  if (!missing.empty()) return fail(arguments, terminal, missing);

  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  JobRequest request;
  request.target = request.planned_for = arguments.text("target");  // a run file and a plan name their own
  request.output = arguments.text("output");
  Result<JobFiles> files = job_files(arguments, *session, terminal, request);
  if (!files.ok()) return fail(arguments, terminal, files.diagnostics);
  return deliver(arguments, terminal, std::move(files->delivery));
}

}  // namespace

Command emit_command() {
  Command command;
  command.summary = "plan.json, configuration files and launch scripts, into a folder";
  command.positional = "[run.yaml]";
  command.max_positionals = 1;
  command.examples = {"distsetup emit --target native --model 7B --output run",
                      "distsetup emit --target slurm --plan plan.json --output run",
                      "distsetup emit --target deepspeed run.yaml --output run"};
  command.notes = "Targets: " + known_targets() + ". Files with the same content are left alone.";
  command.flags = {
      {"target",
       {},
       FlagKind::kValue,
       "WHICH",
       "what the files are for, or a folder of --templates",
       0,
       target_names(embedded_templates())},
      output_flag("the folder the files go to"),
      force_flag(),
      dry_run_flag(),
      {"coverage", {}, FlagKind::kSwitch, "", "instead: which plan fields each target writes, refuses or has no use for", 0},
      {"fsdp-version", {}, FlagKind::kValue, "N", "target fsdp: 1 or 2 (2)", 0, {"1", "2"}},
      {"nvme-path", {}, FlagKind::kValue, "DIR", "node-local folder that NVMe offload goes to", 0},
      plan_flag(),
      config_flag(),
      presets_flag(),
      templates_flag()};
  for (const Flag& flag : job_flags()) command.flags.push_back(flag);
  for (Flag& flag : layer_flags()) command.flags.push_back(std::move(flag));
  command.run_keys = kAllRunKeys;
  command.after_dashes = AfterDashes::kPassedOn;
  command.run = run_emit;
  return command;
}

}  // namespace distsetup
