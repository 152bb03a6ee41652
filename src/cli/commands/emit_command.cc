// `distsetup emit`: plan.json and the files that run it, into a folder.
#include <fmt/format.h>

#include <map>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "cli/commands/commands.h"
#include "cli/commands/coverage_text.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/run_source.h"

namespace distsetup {
namespace {

std::string next_command(const std::string& target, const std::string& directory) {
  const std::string at = directory == "." ? "" : directory + (directory.back() == '/' ? "" : "/");
  static const std::map<std::string, std::vector<std::string>> kStart = {
      {"slurm", {"sbatch", "job.sbatch"}},
      {"pbs", {"qsub", "job.pbs"}},
      {"lsf", {"bsub", "<", "job.lsf"}},
      {"kubernetes", {"kubectl", "apply", "-f", "job.yaml"}},
      {"kubernetes-jobset", {"kubectl", "apply", "-f", "jobset.yaml"}},
      {"kubernetes-pytorchjob", {"kubectl", "apply", "-f", "pytorchjob.yaml"}},
      {"kubernetes-trainjob", {"kubectl", "apply", "-f", "trainjob.yaml"}},
      {"skypilot", {"sky", "launch", "task.yaml"}},
      {"docker-compose", {"docker", "compose", "--file", "compose.yaml", "up"}}};
  const auto start = kStart.find(target);
  if (start != kStart.end()) {
    std::string words;
    for (const std::string& word : start->second) {
      const bool is_file = word.find('.') != std::string::npos;
      words += (words.empty() ? "" : " ") + (word == "<" ? word : join_command({is_file ? at + word : word}));
    }
    return words;
  }
  for (const char* name : {"native", "torchrun", "mpirun", "ssh"}) {
    if (target == name) return join_command({(at.empty() ? "./" : at) + "launch.sh"});
  }
  return join_command({"distsetup", "plan", "--plan", at + "plan.json"});
}

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
  if (!arguments.has("output")) {
    missing.push_back(
        error(code::kMissingArgument, command_line(), "no --output, expected the folder the files go to", "add --output run"));
  }
  if (!missing.empty()) return fail(arguments, terminal, missing);

  EmitOptions options;
  Diagnostics diagnostics;
  const Result<Session> session = open_session(arguments);
  append(diagnostics, session.diagnostics);
  if (session.value) options.templates = session->templates;
  const Result<int64_t> version = int_flag(arguments, "fsdp-version", options.fsdp_version, 1, 2);
  append(diagnostics, version.diagnostics);
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  options.fsdp_version = static_cast<int>(*version);
  options.nvme_path = arguments.text("nvme-path");
  options.command = emitted_command(arguments);

  Result<PlanSource> source = read_or_make_plan(arguments, *session, arguments.text("target"));
  append(diagnostics, said_of(source));
  if (!source.ok()) return fail(arguments, terminal, diagnostics);
  Plan& plan = source->plan;
  const std::string directory = arguments.text("output");
  move_data_root(plan, ".", directory);
  Result<JobOptions> job = job_options(arguments, site_path(arguments, plan.launch.site));
  append(diagnostics, job.diagnostics);
  if (!job.ok()) return fail(arguments, terminal, diagnostics);
  options.job = std::move(*job);
  options.job.time_limit = time_limit(arguments, plan.launch.time_limit_s);
  const std::string target = arguments.text("target", plan.launch.target);  // a run file and a plan name their own
  Diagnostics idle = refuse_idle_job_flags(arguments, options.templates, target);
  if (target != "fsdp") append(idle, refuse_idle(arguments, {"fsdp-version"}, "with --target fsdp"));
  if (plan.offload.optimizer != OffloadPlace::kNvme && plan.offload.parameters != OffloadPlace::kNvme)
    append(idle, refuse_idle(arguments, {"nvme-path"}, "with a plan that offloads to NVMe"));
  if (!idle.empty()) return fail(arguments, terminal, idle);
  const Result<Artifacts> artifacts = emit(plan, target, options);
  append(diagnostics, artifacts.diagnostics);
  if (!artifacts.ok()) return fail(arguments, terminal, diagnostics);

  mention(terminal, machines_line(plan));
  int code = kDone;
  if (plan.verdict == Verdict::kDoesNotFit) {
    diagnostics.push_back(warning(code::kNothingFits, {}, "the files are written, and launch refuses the plan"));
    code = ExitCode::kNothingFits;
  }
  code = deliver_all(arguments, terminal, *artifacts, directory, diagnostics, code);
  if (code == kDone && !arguments.has("dry-run")) suggest_next(terminal, next_command(target, directory));
  return code;
}

}  // namespace

Command emit_command() {
  Command command;
  command.name = "emit";
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
