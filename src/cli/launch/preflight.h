// What a machine or a cluster can give, beside what a plan wants, before anything is started: `distsetup launch --check`.
// Changes nothing. A line for each check; what is not as wanted is an error with the action that mends it (kPreflight).
#pragma once
#include <string>
#include <vector>

#include "cli/launch/launch.h"
#include "cli/line/terminal.h"
#include "codegen/job/options.h"
#include "plan/plan.h"

namespace distsetup {

struct Finding {
  bool is_good = true;
  std::string check, found;    // "partition", "main: 2 nodes of 2 GPUs"
  std::string wanted, action;  // when it is not good
};

// This node, for its share of the plan: trainer, GPUs, host memory, data, room for checkpoints.
std::vector<Finding> check_node(const LaunchOptions& options, const Plan& plan);

// The cluster, as sinfo and `sbatch --test-only` know it. `script` is a file with the job.
std::vector<Finding> check_slurm(const JobOptions& options, const Plan& plan, const std::string& script);

// The lines to standard error, and the mistakes among them.
Diagnostics report_findings(const Terminal& terminal, const std::vector<Finding>& findings);

// GPUs this process may use: as CUDA_VISIBLE_DEVICES lists them, else devices of the driver. -1: no driver here.
int visible_gpus();

}  // namespace distsetup
