// JSON Schema (2020-12), as much of it as our requests need: type, enum, const, minimum, exclusiveMinimum, maximum, minLength,
// maxLength, pattern, properties, required, additionalProperties, items, minItems, maxItems, anyOf, $ref. One text describes a body in
// /openapi.json and refuses what does not fit it, so that the two cannot differ.
#pragma once
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "service/http_message.h"

namespace distsetup {

// Every mistake of `value`, `where` it is. Of anyOf the mistakes of the branch that came furthest.
void check_body(const Json& schema, const Json& value, const std::string& where, std::vector<BodyMistake>& out);
// A parameter of a path or a query, as the value that its schema asks for; text that is none of it stays text, which check_body
// refuses.
Json parameter_value(const Json& schema, const std::string& text);
// A body: strictly JSON, no key twice, whole numbers as integers where the schema asks for them. Mistakes instead of a value.
Json read_body(const Json& schema, const std::string& text, std::vector<BodyMistake>& out);

}  // namespace distsetup
