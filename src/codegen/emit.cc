#include "codegen/emit.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "codegen/job/job_fields.h"
#include "codegen/tables/emit_target.h"
#include "codegen/tables/target.h"

namespace distsetup {
namespace {

const Location kOnCommandLine{"command line", 0, 0};

Fields fields_with_options(const Plan* plan, const EmitOptions& options) {
  Fields fields = plan != nullptr ? fields_of(*plan) : no_fields();
  if (plan == nullptr) return fields;
  set_field(fields, "options.fsdp_version", options.fsdp_version);
  set_field(fields, "options.checkpoint", "sharded");
  if (!options.saves.empty() && plan->checkpoint.every_steps == 0) set_field(fields, "options.saves", options.saves);
  if (options.keeps_all && !is_native(*plan)) set_field(fields, "checkpoint.keep", nullptr);
  if (!options.nvme_path.empty()) set_field(fields, "options.nvme_path", options.nvme_path);
  return fields;
}

// The trainer's files, and those of what starts them.
Result<Artifacts> emit_via(const Plan& plan, const TargetDescription& trainer, const std::string& target, const EmitOptions& options) {
  JobOptions job = options.job;
  job.node_script = trainer.node_script;
  Result<Fields> fields = job_fields(job, options.command, fields_with_options(&plan, options), &plan);
  if (!fields.ok()) return fields.diagnostics;
  TargetInput input{std::move(*fields), &plan, options.command, kOnCommandLine};
  Result<Artifacts> files = emit_target(options.templates, target, input);
  Diagnostics diagnostics = files.diagnostics;
  if (!files.ok()) return diagnostics;
  input.started = &*files;
  const Result<Artifacts> starters = emit_target(options.templates, options.via, input);
  append(diagnostics, starters.diagnostics);
  if (!starters.ok()) return diagnostics;
  files->insert(files->end(), starters->begin(), starters->end());
  return {std::move(*files), std::move(diagnostics)};
}

}  // namespace

Result<Artifacts> emit(const Plan* plan, std::string_view target, const EmitOptions& options) {
  const Result<TargetDescription> described = describe_target(options.templates, std::string(target), kOnCommandLine);
  if (!described.ok()) return described.diagnostics;
  if (plan == nullptr && !described->without_plan)
    return error(code::kMissingArgument, kOnCommandLine, fmt::format("target '{}' is written from a plan, and none is given", target));
  if (!options.via.empty()) return emit_via(*plan, *described, std::string(target), options);
  Result<Fields> all = job_fields(options.job, options.command, fields_with_options(plan, options), plan);
  if (!all.ok()) return all.diagnostics;
  return emit_target(options.templates, std::string(target), TargetInput{std::move(*all), plan, options.command, kOnCommandLine});
}

}  // namespace distsetup
