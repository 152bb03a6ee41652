// `distsetup launcher`: one script that starts a run on every node, with the configuration file its strategy needs, made anew each
// time so that it cannot be an old one. Without words behind "--" it runs the bundled trainer.
#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/run_source.h"

namespace distsetup {
namespace {

constexpr char kLauncherScript[] = "run_training.sh";

Diagnostics check_words(const Arguments& arguments) {
  Diagnostics found;
  const bool is_deepspeed = arguments.has("use-deepspeed"), is_fsdp = arguments.has("use-fsdp");
  if (is_deepspeed && is_fsdp) {
    found.push_back(error(code::kConflict, command_line(), "--use-deepspeed and --use-fsdp are both given, expected one of them",
                          "keep one of them"));
  }
  if (arguments.positionals.empty() && !arguments.has("config") && !arguments.has("plan") && arguments.run_flags.empty()) {
    found.push_back(
        error(code::kMissingArgument, command_line(), "no --config, expected the run file of the training", "add --config run.yaml"));
  }
  return found;
}

int run_launcher(const Arguments& typed, const Terminal& terminal) {
  Arguments arguments = typed;
  Diagnostics diagnostics = check_words(arguments);
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  EmitOptions options;
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  options.templates = session->templates;
  std::string use = arguments.has("use-deepspeed") ? "deepspeed" : arguments.has("use-fsdp") ? "fsdp" : "none";
  if (!name_script(arguments, options.templates, diagnostics) && use != "none") {
    diagnostics.push_back(bundled_instead(use));
    use = "none";
  }
  if (use != "none") choose_engine(arguments, *session, use);
  if (use == "deepspeed") append(diagnostics, check_script(arguments));
  Result<PlanSource> source = read_or_make_plan(arguments, *session, use == "none" ? "native" : use);
  append(diagnostics, said_of(source));
  if (!source.ok() || has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  Plan& plan = source->plan;
  append(diagnostics, needs_program(arguments, plan));
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  // A script of one's own is started as its file says.
  const std::string& trainer = plan.strategy.trainer;
  if (use == "none" && !arguments.passed_on.empty())
    use = trainer == "deepspeed" ? "deepspeed" : trainer == "fsdp1" || trainer == "fsdp2" ? "fsdp" : "none";
  const OutputPath at = output_path(arguments.text("output", std::string("scripts/") + kLauncherScript), kLauncherScript);
  move_data_root(plan, ".", at.directory);
  Result<JobOptions> job = job_options(arguments, site_path(arguments, plan.launch.site));
  append(diagnostics, job.diagnostics);
  append(diagnostics, refuse_idle_job_flags(arguments, options.templates, "launcher"));
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  options.job = std::move(*job);
  options.job.use = use;
  options.command = emitted_command(arguments);
  Result<Artifacts> artifacts = emit(plan, "launcher", options);
  append(diagnostics, artifacts.diagnostics);
  if (!artifacts.ok()) return fail(arguments, terminal, diagnostics);
  for (Artifact& artifact : *artifacts) {
    if (artifact.path == kLauncherScript) artifact.path = at.file;
  }
  mention(terminal, machines_line(plan));
  const bool fits = plan.verdict != Verdict::kDoesNotFit;
  if (!fits) diagnostics.push_back(warning(code::kNothingFits, {}, "the files are written, and the run will refuse the plan"));
  const int code = deliver_all(arguments, terminal, *artifacts, at.directory, diagnostics, fits ? kDone : ExitCode::kNothingFits);
  if (code == kDone && !arguments.has("dry-run"))
    suggest_next(terminal, join_command({(at.directory == "." ? "./" : at.directory + "/") + at.file}));
  return code;
}

}  // namespace

Command launcher_command() {
  Command command;
  command.name = "launcher";
  command.summary = "one script that starts a run on every node";
  command.positional = "[run.yaml]";
  command.max_positionals = 1;
  command.examples = {"distsetup launcher --config run.yaml --num_nodes 4 --num_gpus_per_node 8 --master_addr 192.168.1.100",
                      "distsetup launcher --config run.yaml --use_deepspeed -- train.py --learning-rate 1e-4"};
  command.notes =
      "Words behind -- are a Python script of your own and its arguments; with --use-deepspeed it gets `--deepspeed FILE` behind "
      "them, "
      "with --use-fsdp accelerate starts it. Without words it is the bundled trainer, with a fine-tuning config.yaml `src/train.py "
      "--config FILE`. On several nodes NODE_RANK comes from the environment unless --node-rank bakes it in.";
  command.flags = {output_flag("the script (scripts/run_training.sh); plan.json and the configuration file go beside it"),
                   force_flag(),
                   dry_run_flag(),
                   {"use-deepspeed", {}, FlagKind::kSwitch, "", "DeepSpeed ZeRO, with ds_config.json", 0},
                   {"use-fsdp", {}, FlagKind::kSwitch, "", "PyTorch FSDP, with accelerate.yaml", 0},
                   plan_flag(),
                   config_flag(),
                   presets_flag(),
                   templates_flag()};
  for (std::vector<Flag> flags : {launcher_flags(), job_flags()}) {
    for (Flag& flag : flags) {
      flag.help = flag.help.substr(flag.help.find(' ') + 1);
      command.flags.push_back(std::move(flag));
    }
  }
  command.run_keys = kAllRunKeys;
  command.after_dashes = AfterDashes::kPassedOn;
  command.run = run_launcher;
  return command;
}

}  // namespace distsetup
