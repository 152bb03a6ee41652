// /openapi.json, out of the route table.
#pragma once
#include "base/json_fwd.h"

namespace distsetup {

Json openapi_document();

}  // namespace distsetup
