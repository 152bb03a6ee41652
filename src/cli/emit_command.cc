// `distsetup emit`: plan.json and the files that run it, into a folder.
#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/run_source.h"
#include "cli/job_flags.h"

namespace distsetup {
namespace {

std::string next_command(const std::string& target, const std::string& directory) {
  const std::string at = directory == "." ? "" : directory + (directory.back() == '/' ? "" : "/");
  if (target == "native") return join_command({(at.empty() ? "./" : at) + "launch.sh"});
  if (target == "slurm") return join_command({"sbatch", at + "job.sbatch"});
  return join_command({"distsetup", "plan", "--plan", at + "plan.json"});
}

std::string known_targets() { return fmt::format("{}", fmt::join(target_names(embedded_templates()), ", ")); }

int run_emit(const Arguments& arguments, const Terminal& terminal) {
  Diagnostics missing;
  const bool names_target =
      arguments.has("target") || arguments.has("plan") || !arguments.positionals.empty() || arguments.has("config");
  if (!names_target) {
    missing.push_back(error(code::kMissingArgument, command_line(), "no --target, expected one of " + known_targets(),
                            "add --target native"));
  }
  if (!arguments.has("output")) {
    missing.push_back(
        error(code::kMissingArgument, command_line(), "no --output, expected the folder the files go to", "add --output run"));
  }
  if (!missing.empty()) return fail(arguments, terminal, missing);

  EmitOptions options;
  Diagnostics diagnostics;
  if (arguments.has("templates")) {
    Result<TemplateSet> templates = load_templates(arguments.text("templates"));
    append(diagnostics, templates.diagnostics);
    if (templates.value) options.templates = std::move(*templates);
  }
  const Result<int64_t> version = int_flag(arguments, "fsdp-version", options.fsdp_version, 1, 2);
  append(diagnostics, version.diagnostics);
  const Result<JobOptions> slurm = job_options(arguments);
  append(diagnostics, slurm.diagnostics);
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  options.fsdp_version = static_cast<int>(*version);
  options.nvme_path = arguments.text("nvme-path");
  options.job = *slurm;
  options.command = emitted_command(arguments);

  Result<PlanSource> source = read_or_make_plan(arguments, arguments.text("target"));
  append(diagnostics, said_of(source));
  if (!source.ok()) return fail(arguments, terminal, diagnostics);
  Plan& plan = source->plan;
  const std::string directory = arguments.text("output");
  move_data_root(plan, ".", directory);
  if (plan.launch.time_limit_s > 0) options.job.time_limit = format_slurm_time(plan.launch.time_limit_s);
  const std::string target = arguments.text("target", plan.launch.target);  // a run file and a plan name their own
  Diagnostics idle;
  if (target != "slurm") append(idle, refuse_idle(arguments, job_flag_names(), "with --target slurm"));
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
  command.flags = {{"target", {}, FlagKind::kValue, "WHICH", "what the files are for, or a folder of --templates", 0},
                   output_flag("the folder the files go to"),
                   force_flag(),
                   dry_run_flag(),
                   {"fsdp-version", {}, FlagKind::kValue, "N", "target fsdp: 1 or 2 (2)", 0},
                   {"nvme-path", {}, FlagKind::kValue, "DIR", "node-local folder that NVMe offload goes to", 0},
                   plan_flag(),
                   config_flag(),
                   presets_flag(),
                   templates_flag()};
  for (const Flag& flag : job_flags()) command.flags.push_back(flag);
  command.run_keys = kAllRunKeys;
  command.run = run_emit;
  return command;
}

}  // namespace distsetup
