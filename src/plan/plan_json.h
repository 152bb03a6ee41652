// plan.json: what `plan --json` prints and the trainer reads.
#pragma once
#include <string_view>

#include "base/json.h"
#include "plan/plan.h"

namespace distsetup {

// plan.json. Reading refuses unknown and missing keys, another schema_version (kPlanVersion) and values out of range (kPlanCorrupt).
// Settings that earlier plans do not have (visit() with a usual value, plan_fields.h) are left out where they are as usual.
Json to_json(const Plan& plan);
Result<Plan> plan_from_json(std::string_view text, std::string_view file_name);
// The envelope of a failed `plan --json`: verdict null and diagnostics.
Json failed_plan_json(const Diagnostics& diagnostics);
Json to_json(const Diagnostics& diagnostics);

}  // namespace distsetup
