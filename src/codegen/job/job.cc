// The two ways from options to files: a SLURM script with or without a plan, and any target with one. The options become fields in
// codegen/job_fields.cc; what is written is data (templates/).
#include "codegen/tables/target.h"

namespace distsetup {

Result<Artifacts> slurm_script(const JobOptions& options, const std::optional<Plan>& plan) {
  const Plan* given = plan ? &*plan : nullptr;
  Result<Fields> fields = job_fields(options, given != nullptr ? fields_of(*given) : no_fields(), given);
  if (!fields.ok()) return fields.diagnostics;
  return emit_target(options.templates, "slurm", Source{std::move(*fields), given, options.command, {"command line", 0, 0}});
}

Result<Artifacts> emit(const Plan& plan, std::string_view target, const EmitOptions& options) {
  Fields fields = fields_of(plan);
  set_field(fields, "options.fsdp_version", options.fsdp_version);
  set_field(fields, "options.checkpoint", "sharded");
  if (!options.nvme_path.empty()) set_field(fields, "options.nvme_path", options.nvme_path);
  Result<Fields> all = job_fields(options.job, std::move(fields), &plan);
  if (!all.ok()) return all.diagnostics;
  return emit_target(options.templates, std::string(target), Source{std::move(*all), &plan, options.command, {"command line", 0, 0}});
}

}  // namespace distsetup
