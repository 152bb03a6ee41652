// What srun really starts, and when the shell expands what it is given. Rules of a job script as a whole are slurm_job.cc.
#include "codegen/lint/slurm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "codegen/lint/slurm_job.h"
#include "codegen/shell/expand.h"
#include "codegen/tables/name_table.h"

namespace distsetup::lint {
namespace {

using NameSet = std::set<std::string, std::less<>>;

// Different on every task, so an expansion in the batch script gives everybody the head's.
const NameSet kPerTask = {"SLURM_PROCID",    "SLURM_LOCALID",           "SLURM_NODEID",
                          "SLURMD_NODENAME", "SLURM_TASK_PID",          "SLURM_LAUNCH_NODE_IPADDR",
                          "SLURM_GTIDS",     "SLURM_CPUS_ON_NODE_TASK", "SLURM_TOPOLOGY_ADDR"};

void sl_shapes(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  int64_t tasks = in.count("ntasks-per-node");
  if (tasks == 0) tasks = in.directive("ntasks") != nullptr && in.nodes > 0 ? in.count("ntasks") / in.nodes : 1;
  if (const auto own = number(srun.value("ntasks_per_node"))) tasks = *own;
  for (const char* name : {"ntasks", "n"}) {
    const LaunchOption* own = srun.find(name);
    if (own == nullptr) continue;
    const auto n = number(own->value);
    tasks = n && in.nodes > 0 ? *n / in.nodes : n ? *n : 1;
  }
  const LaunchStage* launcher = launcher_under(in, line);
  if (launcher != nullptr && tasks > 1) {
    in.report.add(
        "SL001", in.d, srun.span,
        fmt::format("srun starts {} tasks on a node and each one starts {}: {} launchers per node", tasks, launcher->name, tasks));
  }
  if (launcher != nullptr && launcher->program == LaunchProgram::kDeepspeed && !launcher->has("hostfile") && !launcher->has("H") &&
      !launcher->has("no_ssh")) {
    in.report.add("SL004", in.d, launcher->span,
                  "deepspeed under srun without a hostfile: each node is a job of its own, master 127.0.0.1");
  }
  const LaunchStage* script = line.find(LaunchProgram::kScript);
  const bool is_python = script != nullptr && script->name.size() > 3 && script->name.substr(script->name.size() - 3) == ".py";
  if (launcher == nullptr && is_python && in.gpus > 1 && tasks != in.gpus) {
    in.report.add("SL002", in.d, srun.span,
                  fmt::format("srun starts {} per node, the node has {} GPUs: one task per GPU is needed",
                              tasks == 1 ? "one task" : fmt::format("{} tasks", tasks), in.gpus));
  }
}

bool is_exported(const JobScript& in, std::string_view name) {
  return std::any_of(in.part.script.commands.begin(), in.part.script.commands.end(), [name](const ShellCommand& command) {
    const bool exports = !command.words.empty() && command.words[0].text == "export";
    return exports && std::any_of(command.assignments.begin(), command.assignments.end(),
                                  [name](const ShellAssignment& one) { return one.name == name; });
  });
}

// Double quotes may become single ones when nothing inside needs the batch script's own variables.
std::vector<LintEdit> to_single_quotes(const JobScript& in, const WordPart& part) {
  const std::string_view inside = in.d.cut(part.span);
  if (inside.find_first_of("'\\`") != std::string_view::npos || inside.find("$(") != std::string_view::npos) return {};
  for (const auto& [name, at] : expansions(in.d.text, part.span)) {
    if (name.rfind("SLURM_", 0) != 0 && !is_exported(in, name)) return {};
  }
  return {{part.span.begin - 1, part.span.begin, "'"}, {part.span.end, part.span.end + 1, "'"}};
}

void report_early(const JobScript& in, TextSpan range, const std::vector<LintEdit>& edits, std::string_view where) {
  for (const auto& [name, at] : expansions(in.d.text, range)) {
    if (kPerTask.count(name) == 0) continue;
    const size_t length = name.size() + (in.d.text[at + 1] == '{' ? 3 : 1);
    in.report.add(
        "SL003", in.d, {at, at + length},
        fmt::format("'${}' is expanded once, on the head, before {}: every node gets the head's value (rank 0)", name, where),
        {"", "", edits, {}});
    return;
  }
}

void sl_early(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  const ShellCommand& command = in.command(line);
  for (const ShellWord& word : command.words) {
    if (word.span.begin < srun.span.begin) continue;
    for (const WordPart& part : word.parts) {
      if (part.quote == ShellQuote::kSingle) continue;
      report_early(in, part.span, part.quote == ShellQuote::kDouble ? to_single_quotes(in, part) : std::vector<LintEdit>{},
                   "srun starts");
    }
  }
  for (const ShellAssignment& one : command.assignments) report_early(in, one.span, {}, "srun starts");
  for (const HereDocument& here : command.here) {
    if (here.expands) report_early(in, here.body, {}, "srun starts");
  }
}

void sl_exports(const JobScript& in, bool has_srun) {
  if (!in.is_batch || !has_srun) return;
  for (const ShellCommand& command : in.part.script.commands) {
    const bool exports = command.depth == 0 && !command.words.empty() && command.words[0].text == "export";
    for (const ShellAssignment& one : command.assignments) {
      if (exports) report_early(in, {one.value.span.begin, one.value.span.end}, {}, "srun starts");
    }
  }
}

// A job script that is written by another script: cat <<EOF > job.sbatch.
void sl_written(const JobScript& in) {
  for (const ShellCommand& command : in.part.script.commands) {
    const bool is_cat = !command.words.empty() &&
                        (command.words[0].text == "cat" || command.words[0].text == "tee" || command.words[0].text == "sbatch");
    for (const HereDocument& here : command.here) {
      const bool is_job = is_cat && here.expands && in.d.cut(here.body).find("#SBATCH") != std::string_view::npos;
      if (is_job) report_early(in, here.body, {}, "the job is written");
    }
  }
}

void sl_srun_options(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  const std::vector<NameEntry>& known = *name_table("slurm").type("srun");
  for (const LaunchOption& option : srun.options) {
    if (option.name.empty() || takes_option(known, option.spelled, true)) continue;
    const std::string near = nearest_option(known, option.spelled);
    in.report.add("SL021", in.d, {option.span.begin, option.span.begin + option.spelled.size()},
                  fmt::format("srun has no option '{}'", option.spelled),
                  {near.empty() || option.name == "include" ? "" : fmt::format("did you mean '{}'", near), "", {}, {}});
  }
  const LaunchOption* bind = srun.find("gpu_bind");
  const LaunchOption* per_task = srun.find("gpus_per_task");
  if (starts_training(in, line) && (per_task != nullptr || (bind != nullptr && bind->value.rfind("single", 0) == 0))) {
    in.report.add("SL008", in.d, (per_task != nullptr ? per_task : bind)->span,
                  "each task sees its own GPU only: peers are hidden and LOCAL_RANK is no device index");
  }
  const bool has_kill = srun.has("kill_on_bad_exit") || srun.has("K") || in.setup.environment("SLURM_KILL_BAD_EXIT") != nullptr;
  if (starts_training(in, line) && !has_kill) {
    in.report.add("SL009", in.d, srun.span,
                  "srun without --kill-on-bad-exit: when one task dies the others hold the job until NCCL's timeout",
                  {"", "", {{srun.span.end, srun.span.end, " --kill-on-bad-exit=1"}}, {}});
  }
}

void sl_pipes(const JobScript& in, const LaunchLine& line, const LaunchStage& srun) {
  const bool has_pipefail =
      std::any_of(in.part.script.commands.begin(), in.part.script.commands.end(), [](const ShellCommand& command) {
        const bool is_set = !command.words.empty() && (command.words[0].text == "set" || command.words[0].text == "shopt");
        return is_set &&
               std::any_of(command.words.begin(), command.words.end(), [](const ShellWord& word) { return word.text == "pipefail"; });
      });
  if (in.command(line).ends_with == "|" && !has_pipefail && in.part.script.shebang.find("pipefail") == std::string::npos) {
    in.report.add("SL010", in.d, srun.span, "the pipe hides srun's exit code: a failed job counts as done");
  }
}

}  // namespace

void check_slurm(const LintSetup& setup, const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    JobScript in{setup, d, report, part, d.is(file_kind::kSbatch), 0, 0};
    in.nodes = in.count("nodes") > 0 ? in.count("nodes") : setup.nodes();
    in.gpus = setup.gpus_per_node();
    std::vector<const LaunchLine*> sruns;
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* srun = line.find(LaunchProgram::kSrun);
      if (srun == nullptr || in.command(line).in_substitution) continue;
      sruns.push_back(&line);
      sl_shapes(in, line, *srun);
      sl_early(in, line, *srun);
      sl_srun_options(in, line, *srun);
      sl_pipes(in, line, *srun);
    }
    sl_exports(in, !sruns.empty());
    sl_written(in);
    if (in.is_batch) check_job(in, sruns);
  }
}

}  // namespace distsetup::lint
