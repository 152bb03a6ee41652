// `distsetup compare A B`: the training curves of two runs, side by side, and whether they agree.
#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/compare/compare_runs.h"
#include "cli/line/output.h"

namespace distsetup {
namespace {

constexpr double kUsualThreshold = 0.05;

int run_compare(const Arguments& arguments, const Terminal& terminal) {
  const Result<double> threshold = double_flag(arguments, "threshold", kUsualThreshold);
  if (!threshold.ok()) return fail(arguments, terminal, threshold.diagnostics);
  if (*threshold <= 0 || *threshold >= 1)
    return fail(arguments, terminal,
                {error(code::kOutOfRange, command_line(), "--threshold is a share of the loss, expected more than 0 and less than 1",
                       "--threshold 0.05 is 5 %")});
  Diagnostics diagnostics;
  std::vector<RunLog> logs;
  for (const std::string& path : arguments.positionals) {
    Result<RunLog> log = read_run_log(path);
    append(diagnostics, log.diagnostics);
    if (log.ok()) logs.push_back(std::move(*log));
  }
  if (logs.size() != 2) return fail(arguments, terminal, diagnostics);
  const Result<RunComparison> comparison = compare_runs(std::move(logs[0]), std::move(logs[1]), *threshold);
  if (!comparison.ok()) return fail(arguments, terminal, comparison.diagnostics);
  const int code = comparison->agree ? kDone : kDiffers;
  if (arguments.has("json")) return print_result(terminal, dump_json(to_json(*comparison)), code);
  return print_result(terminal, to_text(*comparison, terminal.out.width_columns), code);
}

}  // namespace

Command compare_command() {
  Command command;
  command.summary = "whether two runs trained alike: losses, norms, time and memory";
  command.positional = "RUN RUN";
  command.min_positionals = 2;
  command.max_positionals = 2;
  command.examples = {"distsetup compare runs/zero2 runs/zero3", "distsetup compare megatron.log runs/ours --threshold 0.02"};
  command.notes =
      "RUN is the folder of a run or a log: metrics.jsonl, a Trainer's trainer_state.json, JSON lines, a CSV, or what Megatron-LM, "
      "torchtitan, the Hugging Face Trainer, OpenRLHF, torchtune and others printed. The losses agree when the first, the mean, the "
      "last "
      "and every twentieth of the steps differ by at most the threshold. Exit code 7: they do not.";
  command.flags = {{"threshold", {}, FlagKind::kValue, "SHARE", "the largest difference that counts as the same; 0.05", 0}};
  command.run = run_compare;
  return command;
}

}  // namespace distsetup
