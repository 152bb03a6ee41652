#include "codegen/shell/job_variables.h"

#include <algorithm>

namespace distsetup::foreign {

std::map<std::string, std::string, std::less<>> job_variables(const ShellScript& script) {
  std::map<std::string, std::string, std::less<>> out;
  const Directive* nodes = script.directive("nodes");
  const bool is_number =
      nodes != nullptr && !nodes->value.empty() && nodes->value.find_first_not_of("0123456789") == std::string::npos;
  if (is_number) out = {{"SLURM_NNODES", nodes->value}, {"SLURM_JOB_NUM_NODES", nodes->value}};
  return out;
}

std::set<std::string, std::less<>> set_by_job(const ShellScript& script) {
  std::set<std::string, std::less<>> out;
  if (!script.pbs.empty()) out.insert({"PBS_NODEFILE", "PBS_JOBID", "PBS_O_WORKDIR"});
  if (!script.lsf.empty()) out.insert({"LSB_JOBID", "LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE"});
  if (script.directives.empty()) return out;
  out.insert({"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_NNODES", "SLURM_JOB_NUM_NODES",
              "SLURM_PROCID", "SLURM_NODEID", "SLURM_LOCALID", "SLURM_SUBMIT_DIR"});
  for (const auto& [option, name] :
       {std::pair("gres", "SLURM_GPUS_ON_NODE"), std::pair("gpus-per-node", "SLURM_GPUS_ON_NODE"),
        std::pair("gpus-per-node", "SLURM_GPUS_PER_NODE"), std::pair("ntasks", "SLURM_NTASKS"),
        std::pair("ntasks-per-node", "SLURM_NTASKS_PER_NODE"), std::pair("cpus-per-task", "SLURM_CPUS_PER_TASK")}) {
    if (script.directive(option) != nullptr) out.insert(name);
  }
  return out;
}

bool is_argument(std::string_view name) {
  return !name.empty() && (name == "@" || name == "*" || name == "#" || (name[0] >= '0' && name[0] <= '9'));
}

}  // namespace distsetup::foreign
