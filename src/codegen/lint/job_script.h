// A script under inspection, and what its sruns start. Internal to the checks of SLURM.
#pragma once
#include <string_view>
#include <vector>

#include "codegen/lint/findings.h"
#include "codegen/read/srun_tasks.h"

namespace distsetup::lint {

// What a script does about commands that fail: pipe_status.h.
struct FailureRules {
  bool keeps_status = false;  // of a pipe: pipefail, or PIPESTATUS, which the script looks at
  bool stops = false;         // set -e
};

struct JobScript {
  const LintSetup& setup;
  const Document& d;
  Findings& report;
  const ScriptPart& part;
  bool is_batch = false;
  int64_t nodes = 0, gpus = 0;
  FailureRules failures = {};

  const ShellCommand& command(const LaunchLine& line) const { return part.script.commands[line.command]; }
  const Directive* directive(std::string_view name) const { return part.script.directive(name); }
  int64_t count(std::string_view name) const {
    const Directive* found = directive(name);
    return found == nullptr ? 0 : number(found->value).value_or(0);
  }
};

inline SrunTasks tasks_of(const JobScript& in, const LaunchStage& srun) {
  return foreign::tasks_of(in.part.script, srun, in.setup.context.nodes);
}
inline SrunTasks tasks_of_job(const JobScript& in) { return foreign::tasks_of_job(in.part.script, in.setup.context.nodes); }

// Whether the script has these words where they act: "# Usage: sbatch train.sh" submits nothing.
bool mentions(const JobScript& in, std::string_view words);
const LaunchStage* launcher_of(const LaunchLine& line);  // torchrun, deepspeed or accelerate; nullptr: none
// The launcher that a line starts, itself or inside its bash -c or script; nullptr: none.
const LaunchStage* launcher_under(const JobScript& in, const LaunchLine& line);
// Whether the stage is one of this script, and not of another one that it starts: its places are in this text.
bool is_here(const JobScript& in, const LaunchStage& stage);
// Words between a launcher of this script and what it starts that are not known here: they may hold options.
bool has_unknown_words(const JobScript& in, const LaunchStage& launcher);
bool starts_training(const JobScript& in, const LaunchLine& line);
// Started by an srun: in front of it, or around it (srun bash -c '…').
bool is_under_srun(const ScriptPart& part, const LaunchLine& line);

}  // namespace distsetup::lint
