// `distsetup slurm`: a job script. Without a model it runs the plan that is there when the job starts; with one, plan.json goes beside
// it.
#include "base/diagnostic_codes.h"
#include "cli/commands/commands.h"
#include "cli/deliver/job_files.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/run_source.h"

namespace distsetup {
namespace {

// Two files are written with a model: standard output would take one.
constexpr char kScriptWithPlan[] = "scripts/slurm_job.sh";

// Machines and launch settings alone make a script; anything else is about a plan.
bool wants_plan(const Arguments& arguments, const Spec& spec) {
  if (arguments.has("plan")) return true;
  for (const auto& [path, setting] : spec.settings) {
    const bool is_script = path.compare(0, 9, "hardware.") == 0 || path.compare(0, 7, "launch.") == 0;
    if (!is_script) return true;
  }
  return spec.model.has_value();
}

int run_slurm(const Arguments& arguments, const Terminal& terminal) {
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  const Result<Spec> spec = read_spec(arguments, *session);
  if (!spec.ok()) return fail(arguments, terminal, spec.diagnostics);
  const bool is_planned = wants_plan(arguments, *spec);
  JobRequest request;
  request.target = request.planned_for = "slurm";
  request.names_file = true;
  request.output = arguments.text("output", is_planned ? kScriptWithPlan : "");
  if (arguments.has("use-deepspeed")) request.use = "deepspeed";
  if (!is_planned) request.machines = &*spec;
  if (!is_planned && !request.use.empty()) {
    return fail(arguments, terminal,
                {error(code::kMissingArgument, command_line(), "--use-deepspeed writes ds_config.json from a run, and none is given",
                       "add --config run.yaml, or --model 8B")});
  }
  Result<JobFiles> files = job_files(arguments, *session, terminal, request);
  if (!files.ok()) return fail(arguments, terminal, files.diagnostics);
  if (!is_planned) append(files->delivery.diagnostics, spec.diagnostics);
  return deliver(arguments, terminal, std::move(files->delivery));
}

}  // namespace

Command slurm_command() {
  Command command;
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
