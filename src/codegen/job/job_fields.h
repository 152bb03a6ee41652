// Options of a job as fields (job.*), checked, one spelling each; nothing of a site's own unless it was given.
#pragma once
#include <string>
#include <vector>

#include "codegen/job/options.h"
#include "codegen/tables/fields.h"
#include "plan/plan.h"

namespace distsetup {

// Every job.* field: those that the table of settings names, and those that are computed.
const std::vector<std::string>& job_field_names();

// `fields` with job.* filled in; of machines alone (`plan` nullptr) also hardware.nodes and what goes with it. `command` is looked at
// for secrets, since the header of every file quotes it.
Result<Fields> job_fields(const JobOptions& options, const std::string& command, Fields fields, const Plan* plan);

}  // namespace distsetup
