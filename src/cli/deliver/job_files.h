// From a command line to the files of a target, the same way for emit, slurm, launcher and launch: the plan (read, or made for the
// target), the settings of the job, what is refused because it would do nothing, the files, and the command that starts them.
#pragma once
#include <optional>
#include <string>

#include "base/diagnostic.h"
#include "cli/deliver/deliver.h"
#include "cli/line/flags.h"
#include "cli/settings/session.h"
#include "codegen/emit.h"
#include "planner/spec/spec.h"

namespace distsetup {

struct JobRequest {
  std::string target;              // what the files are for; "" = launch.target of the plan
  std::string planned_for;         // the target that a plan is searched for; "" = launch.target, as the run file has it
  std::string use;                 // what a script of the user's runs with, by a flag: "deepspeed", "fsdp"; "" = nothing was said
  std::string output;              // where the files go; "" = standard output
  bool names_file = false;         // `output` names the file that starts the run, not a folder
  const Spec* machines = nullptr;  // instead of a plan: only these and the launch settings (targets with `without_plan`)
};

struct JobFiles {
  Delivery delivery;         // code kNothingFits where the plan does not fit
  std::optional<Plan> plan;  // as it is written; none for machines alone
  JobOptions job;
};
// Errors, all of a stage together: what the command line, the site file, the planner and the target refuse.
Result<JobFiles> job_files(const Arguments& arguments, const Session& session, const Terminal& terminal, const JobRequest& request);

}  // namespace distsetup
