// site.yaml as JSON Schema (draft-07). Sizes, rates and durations are texts in it; whether one reads is the reader's to say.
#pragma once
#include "base/json_fwd.h"

namespace distsetup {

Json site_schema();

}  // namespace distsetup
