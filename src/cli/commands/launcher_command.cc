// `distsetup launcher`: one script that starts a run on every node, with the configuration file its strategy needs, made anew each
// time so that it cannot be an old one. Without words behind "--" it runs the bundled trainer.
#include "base/diagnostic_codes.h"
#include "cli/commands/commands.h"
#include "cli/deliver/job_files.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/run_source.h"

namespace distsetup {
namespace {

constexpr char kLauncherOutput[] = "scripts/run_training.sh";

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

int run_launcher(const Arguments& arguments, const Terminal& terminal) {
  const Diagnostics mistakes = check_words(arguments);
  if (has_error(mistakes)) return fail(arguments, terminal, mistakes);
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  JobRequest request;
  request.target = "launcher";
  request.planned_for = kNative;
  request.names_file = true;
  request.output = arguments.text("output", kLauncherOutput);
  request.use = arguments.has("use-deepspeed") ? "deepspeed" : arguments.has("use-fsdp") ? "fsdp" : "";
  Result<JobFiles> files = job_files(arguments, *session, terminal, request);
  if (!files.ok()) return fail(arguments, terminal, files.diagnostics);
  return deliver(arguments, terminal, std::move(files->delivery));
}

}  // namespace

Command launcher_command() {
  Command command;
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
