#include "codegen/lint/scheduler_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

#include "codegen/shell/expand.h"

namespace distsetup::lint {
namespace {

// sbatch(1) and srun(1) of SLURM 26.05, qsub(1B) of OpenPBS 23.06 and of Torque 6.1, bsub(1) of IBM Spectrum LSF 10.1. Only those that
// people write otherwise: with an underscore more or less.
constexpr std::array<std::string_view, 72> kNames = {"SLURM_JOB_ID",
                                                     "SLURM_JOBID",
                                                     "SLURM_NODEID",
                                                     "SLURM_PROCID",
                                                     "SLURM_LOCALID",
                                                     "SLURM_NNODES",
                                                     "SLURM_JOB_NUM_NODES",
                                                     "SLURM_NTASKS",
                                                     "SLURM_NPROCS",
                                                     "SLURM_NODELIST",
                                                     "SLURM_JOB_NODELIST",
                                                     "SLURM_STEP_NODELIST",
                                                     "SLURM_STEP_NUM_NODES",
                                                     "SLURM_STEP_NUM_TASKS",
                                                     "SLURM_STEPID",
                                                     "SLURM_STEP_ID",
                                                     "SLURM_CPUS_PER_TASK",
                                                     "SLURM_CPUS_ON_NODE",
                                                     "SLURM_GPUS_ON_NODE",
                                                     "SLURM_GPUS_PER_NODE",
                                                     "SLURM_GPUS_PER_TASK",
                                                     "SLURM_ARRAY_TASK_ID",
                                                     "SLURM_ARRAY_JOB_ID",
                                                     "SLURM_ARRAY_TASK_COUNT",
                                                     "SLURM_SUBMIT_DIR",
                                                     "SLURM_SUBMIT_HOST",
                                                     "SLURM_JOB_NAME",
                                                     "SLURM_NTASKS_PER_NODE",
                                                     "SLURM_TASKS_PER_NODE",
                                                     "SLURM_STEP_GPUS",
                                                     "SLURM_JOB_GPUS",
                                                     "SLURM_JOB_PARTITION",
                                                     "SLURM_JOB_ACCOUNT",
                                                     "SLURM_JOB_USER",
                                                     "SLURM_RESTART_COUNT",
                                                     "SLURM_MEM_PER_NODE",
                                                     "SLURM_MEM_PER_CPU",
                                                     "SLURM_JOB_CPUS_PER_NODE",
                                                     "SLURM_TASK_PID",
                                                     "SLURM_LAUNCH_NODE_IPADDR",
                                                     "PBS_JOBID",
                                                     "PBS_JOBNAME",
                                                     "PBS_NODEFILE",
                                                     "PBS_NODENUM",
                                                     "PBS_TASKNUM",
                                                     "PBS_ARRAY_INDEX",
                                                     "PBS_ARRAY_ID",
                                                     "PBS_ARRAYID",
                                                     "PBS_ENVIRONMENT",
                                                     "PBS_JOBDIR",
                                                     "PBS_JOBCOOKIE",
                                                     "PBS_O_WORKDIR",
                                                     "PBS_O_HOME",
                                                     "PBS_O_HOST",
                                                     "PBS_O_QUEUE",
                                                     "PBS_O_LOGNAME",
                                                     "PBS_QUEUE",
                                                     "PBS_NP",
                                                     "PBS_NUM_NODES",
                                                     "PBS_NUM_PPN",
                                                     "PBS_GPUFILE",
                                                     "LSB_JOBID",
                                                     "LSB_JOBNAME",
                                                     "LSB_JOBINDEX",
                                                     "LSB_HOSTS",
                                                     "LSB_MCPU_HOSTS",
                                                     "LSB_DJOB_HOSTFILE",
                                                     "LSB_DJOB_NUMPROC",
                                                     "LSB_DJOB_RANKFILE",
                                                     "LSB_MAX_NUM_PROCESSORS",
                                                     "LSB_QUEUE",
                                                     "LSB_SUB_HOST"};

std::string bare(std::string_view name) {
  std::string out(name);
  std::erase(out, '_');
  return out;
}

// What was meant; "" where the scheduler has the name, or nothing like it.
std::string_view meant(std::string_view name) {
  const bool is_of_scheduler = name.starts_with("SLURM_") || name.starts_with("PBS_") || name.starts_with("LSB_");
  if (!is_of_scheduler || std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return "";
  const auto* found =
      std::find_if(kNames.begin(), kNames.end(), [wanted = bare(name)](std::string_view one) { return bare(one) == wanted; });
  return found == kNames.end() ? "" : *found;
}

// Set by the script itself, or used with what stands for it where it is empty.
bool is_expected(const Document& d, const std::string& name) {
  for (const char* how : {"=", ":-", ":=", ":+", "-", "+"}) {
    if (d.text.find(name + how) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void check_scheduler_variables(const LintSetup&, const Document& d, Findings& report) {
  std::set<std::string> said;
  for (const ScriptPart& part : d.parts) {
    for (const ShellCommand& command : part.script.commands) {
      std::vector<TextSpan> spans;
      for (const ShellWord& word : command.words) spans.push_back(word.span);
      for (const foreign::ShellRedirection& one : command.redirections) spans.push_back(one.target.span);
      for (const ShellAssignment& one : command.assignments) spans.push_back(one.value.span);
      for (const TextSpan& span : spans) {
        if (span.end > d.text.size() || command.is_dead) continue;
        for (const auto& [name, at] : foreign::expansions(d.text, span)) {
          const std::string_view right = meant(name);
          if (right.empty() || is_expected(d, name) || !said.insert(name).second) continue;
          const size_t begin = at + (d.text.compare(at, 2, "${") == 0 ? 2 : 1);
          report.add("ENV011", d, {begin, begin + name.size()}, fmt::format("'${}' is empty: the scheduler sets {}", name, right),
                     {fmt::format("did you mean {}", right), "", {{begin, begin + name.size(), std::string(right)}}, {}});
        }
      }
    }
  }
}

}  // namespace distsetup::lint
