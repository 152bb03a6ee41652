// From a plan, or from the machines of a job alone, to the files of a target: configuration files of the trainers people already use,
// and launch scripts. A function from values to values: no disk, no clock, no environment; same input, same bytes. What a target
// cannot express is an error that says so, never a dropped field. Warnings and notes come with the value and belong on stderr.
#pragma once
#include <string>
#include <string_view>

#include "codegen/artifact.h"
#include "codegen/job/options.h"
#include "codegen/tables/templates.h"
#include "plan/plan.h"

namespace distsetup {

struct EmitOptions {
  int fsdp_version = 2;    // target fsdp: 1 or 2
  std::string via;         // what starts the target's files, a target itself: "slurm"; "" = nothing
  std::string nvme_path;   // node-local folder that NVMe offload goes to
  std::string saves;       // when checkpoints are written, where the plan does not say it: "no", "epoch"
  bool keeps_all = false;  // other trainers keep as many checkpoints as they do by themselves, whatever the plan has
  // For the header of scripts: the command line without --output and --force (so that the same plan gives the same bytes in every
  // folder), as join_command() quotes it.
  std::string command;
  JobOptions job;
  TemplateSet templates = embedded_templates();
};
// target: one of target_names(). With plan.json, whose text is dump_json(to_json(plan)). `plan` nullptr: for the machines of the job
// alone, which some targets can be written for (`without_plan` of target.yaml); then there is no plan.json.
Result<Artifacts> emit(const Plan* plan, std::string_view target, const EmitOptions& options = {});

}  // namespace distsetup
