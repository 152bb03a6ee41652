// The schemas of bodies and answers, by name: components.schemas of /openapi.json.
#pragma once
#include <string_view>

#include "base/json_fwd.h"

namespace distsetup {

const Json& component_schemas();
// {"$ref": "#/components/schemas/NAME"}
Json schema_named(std::string_view name);
// The schema itself, where it is a $ref what it names.
const Json& resolved_schema(const Json& schema);

}  // namespace distsetup
