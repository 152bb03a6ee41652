#include "codegen/emit.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "codegen/job/job_fields.h"
#include "codegen/tables/emit_target.h"
#include "codegen/tables/target.h"

namespace distsetup {

Result<Artifacts> emit(const Plan* plan, std::string_view target, const EmitOptions& options) {
  const Location at{"command line", 0, 0};
  Fields fields = plan != nullptr ? fields_of(*plan) : no_fields();
  if (plan != nullptr) {
    set_field(fields, "options.fsdp_version", options.fsdp_version);
    set_field(fields, "options.checkpoint", "sharded");
    if (!options.nvme_path.empty()) set_field(fields, "options.nvme_path", options.nvme_path);
  } else {
    const Result<TargetDescription> described = describe_target(options.templates, std::string(target), at);
    if (!described.ok()) return described.diagnostics;
    if (!described->without_plan)
      return error(code::kMissingArgument, at, fmt::format("target '{}' is written from a plan, and none is given", target));
  }
  Result<Fields> all = job_fields(options.job, options.command, std::move(fields), plan);
  if (!all.ok()) return all.diagnostics;
  return emit_target(options.templates, std::string(target), TargetInput{std::move(*all), plan, options.command, at});
}

}  // namespace distsetup
