// run.yaml as JSON Schema (draft-07), out of the table of settings: what an editor completes and underlines.
#pragma once
#include "base/json_fwd.h"

namespace distsetup {

Json run_schema();

}  // namespace distsetup
