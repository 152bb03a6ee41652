// What the files of a command are for, and what starts them: a trainer's target (torchtitan, accelerate-fsdp2), and a scheduler or
// launcher (slurm, kubernetes, ssh) that runs the trainer's script once on every node. The bundled trainer needs no such pair
// (planner/resolve/starter.h).
#pragma once
#include <string>

#include "base/diagnostic.h"
#include "cli/line/flags.h"
#include "codegen/tables/target.h"
#include "plan/plan.h"

namespace distsetup {

struct Targets {
  std::string target;
  std::string via;                // "" = the target's own script is started by hand, or is the job
  TargetDescription description;  // of the target
  StartWords start;               // the command that starts the run
};

// `wanted`: target and starter as the plan and the command line name them. A plan that was made for a trainer's target and is asked
// for as a job ("slurm") becomes both. Errors: a target that nothing can start, words behind -- that are missing.
Result<Targets> settle_targets(const Arguments& arguments, const TemplateSet& templates, const LaunchPlan& wanted, const Plan* plan);

// Steps between checkpoints of a run that nobody said anything about: as often as the plan says, else about half an hour.
int64_t steps_between_checkpoints(const Plan& plan);

// Whether the run is started again by itself after a failure: it goes on from its last checkpoint then.
bool starts_again(const TemplateSet& templates, const Targets& targets, bool is_requeued);

// The target that a plan of its trainer is usually written for: "torchtitan".
std::string usual_target(const Plan& plan);

}  // namespace distsetup
