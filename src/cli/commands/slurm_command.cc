// `distsetup slurm`: a job script. Without a model it runs the plan that is there when the job starts; with one, plan.json goes beside
// it.
#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/run_source.h"

namespace distsetup {
namespace {

constexpr char kScript[] = "job.sbatch";

// Machines and launch settings alone make a script; anything else is about a plan.
bool wants_plan(const Arguments& arguments, const Spec& spec) {
  if (arguments.has("plan")) return true;
  for (const auto& [path, setting] : spec.settings) {
    const bool is_script = path.compare(0, 9, "hardware.") == 0 || path.compare(0, 7, "launch.") == 0;
    if (!is_script) return true;
  }
  return spec.model.has_value();
}

int deliver_script(const Arguments& arguments, const Terminal& terminal, Artifacts artifacts, const Diagnostics& diagnostics,
                   int code) {
  const OutputPath at = output_path(arguments.text("output"), kScript);
  for (Artifact& artifact : artifacts) {
    if (artifact.path == kScript) artifact.path = at.file;
  }
  code = deliver_all(arguments, terminal, artifacts, at.directory, diagnostics, code);
  if (code == kDone && !arguments.has("dry-run"))
    suggest_next(terminal, fmt::format("sbatch {}", join_command({arguments.text("output")})));
  return code;
}

// Two files are written with a model: standard output would take one.
constexpr char kScriptWithPlan[] = "scripts/slurm_job.sh";

int with_plan(Arguments arguments, const Terminal& terminal, const Session& session) {
  Diagnostics diagnostics;
  if (!arguments.has("output")) arguments.values["output"] = kScriptWithPlan;
  bool is_deepspeed = arguments.has("use-deepspeed");
  if (!name_script(arguments, session.templates, diagnostics) && is_deepspeed) {
    diagnostics.push_back(bundled_instead("deepspeed"));
    is_deepspeed = false;
  }
  if (is_deepspeed) choose_engine(arguments, session, "deepspeed");
  if (is_deepspeed) append(diagnostics, check_script(arguments));
  Result<PlanSource> source = read_or_make_plan(arguments, session, is_deepspeed ? "deepspeed" : "slurm");
  append(diagnostics, said_of(source));
  if (!source.ok()) return fail(arguments, terminal, diagnostics);
  Plan& plan = source->plan;
  append(diagnostics, needs_program(arguments, plan));
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  move_data_root(plan, ".", output_path(arguments.text("output"), kScript).directory);
  Result<JobOptions> job = job_options(arguments, site_path(arguments, plan.launch.site));
  append(diagnostics, job.diagnostics);
  if (!job.ok()) return fail(arguments, terminal, diagnostics);
  job->templates = session.templates;
  JobOptions options = std::move(*job);
  if (is_deepspeed) options.use = "deepspeed";
  if (is_deepspeed && options.shape.empty()) options.shape = "torchrun";
  options.nodes = plan.hardware.nodes;
  options.gpus_per_node = plan.hardware.gpus_per_node;
  options.time_limit = time_limit(arguments, plan.launch.time_limit_s);
  const Result<Artifacts> artifacts = slurm_script(options, plan);
  append(diagnostics, artifacts.diagnostics);
  if (!artifacts.ok()) return fail(arguments, terminal, diagnostics);
  mention(terminal, machines_line(plan));
  const bool fits = plan.verdict != Verdict::kDoesNotFit;
  if (!fits) diagnostics.push_back(warning(code::kNothingFits, {}, "the files are written, and the job will refuse the plan"));
  return deliver_script(arguments, terminal, *artifacts, diagnostics, fits ? kDone : ExitCode::kNothingFits);
}

int run_slurm(const Arguments& arguments, const Terminal& terminal) {
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  Diagnostics diagnostics;
  const Result<Spec> spec = read_spec(arguments, *session);
  append(diagnostics, spec.diagnostics);
  if (arguments.has("use-deepspeed") && !has_error(diagnostics) && !wants_plan(arguments, *spec)) {
    diagnostics.push_back(error(code::kMissingArgument, command_line(),
                                "--use-deepspeed writes ds_config.json from a run, and none is given",
                                "add --config run.yaml, or --model 8B"));
  }
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  if (wants_plan(arguments, *spec)) return with_plan(arguments, terminal, *session);

  Result<JobOptions> options = job_options(arguments, spec->text("launch.site").value_or(""));
  append(diagnostics, options.diagnostics);
  if (!options.ok()) return fail(arguments, terminal, diagnostics);
  options->templates = session->templates;
  options->nodes = static_cast<int>(spec->integer("hardware.nodes").value_or(options->nodes));
  options->gpus_per_node = static_cast<int>(spec->integer("hardware.gpus_per_node").value_or(options->gpus_per_node));
  if (const std::optional<int64_t> limit_s = spec->integer("launch.time_limit")) options->time_limit = format_slurm_time(*limit_s);
  const Result<Artifacts> artifacts = slurm_script(*options);
  append(diagnostics, artifacts.diagnostics);
  if (!artifacts.ok()) return fail(arguments, terminal, diagnostics);
  mention(terminal, machines_line(options->nodes, options->gpus_per_node, options->cpu_only ? "CPU rank" : "GPU"));
  if (arguments.has("output") || arguments.has("dry-run")) return deliver_script(arguments, terminal, *artifacts, diagnostics, kDone);
  return deliver(arguments, terminal, artifacts->front(), diagnostics);
}

}  // namespace

Command slurm_command() {
  Command command;
  command.name = "slurm";
  command.summary = "a SLURM job script: one task per GPU, no inner launcher";
  command.positional = "[run.yaml]";
  command.max_positionals = 1;
  command.examples = {"distsetup slurm --nodes 4 --gpus 8 | sbatch",
                      "distsetup slurm --nodes 4 --gpus 8 --model 70B --output job/job.sbatch",
                      "distsetup slurm --plan plan.json --partition gpu --time-limit 48:00:00 --output job.sbatch",
                      "distsetup slurm --config run.yaml --use_deepspeed --output job/job.sbatch -- train.py --learning-rate 1e-4"};
  command.notes =
      "--gpus is GPUs per node. Without a model the job runs $PLAN, plan.json where it is submitted. Nothing is specific to a site "
      "unless given.";
  command.flags = {output_flag("write the script there (and, with a model, plan.json beside it)"),
                   force_flag(),
                   dry_run_flag(),
                   {"use-deepspeed",
                    {},
                    FlagKind::kSwitch,
                    "",
                    "a script of your own with DeepSpeed: ds_config.json beside, `--deepspeed FILE` behind its words",
                    0},
                   plan_flag(),
                   config_flag(),
                   presets_flag(),
                   templates_flag()};
  for (Flag flag : job_flags()) {
    if (flag.help.compare(0, 5, "job: ") == 0) flag.help = flag.help.substr(5);
    command.flags.push_back(std::move(flag));
  }
  command.run_keys = kAllRunKeys;
  command.after_dashes = AfterDashes::kPassedOn;
  command.run = run_slurm;
  return command;
}

}  // namespace distsetup
