// What a key table or a script template can ask for: a flat map from names to values. From a plan these are the paths of plan.json
// ("mesh.dp_shard", "train.grad_clip") plus a few derived ones ("derived.world"); options of a command fill the same names where they
// mean the same ("--zero_stage 2" is strategy.sharding = zero2), so that one table serves `emit` and `distsetup deepspeed`.
// Every name exists always; what a source does not know is null. An unknown name is a mistake in a table.
// Lists of objects (data.files, alternatives) are left out: no target has a use for them.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "plan/plan.h"

namespace distsetup {

using Fields = std::map<std::string, Json, std::less<>>;

// Every name, all null.
const Fields& no_fields();
// derived.source = "plan".
Fields fields_of(const Plan& plan);
// Sets a name that exists; CHECKs that it does.
void set_field(Fields& fields, std::string_view name, Json value);
// As written in conditions, messages and scripts: true, 8, zero3; "null" when not known; lists joined by commas.
std::string field_text(const Json& value);

}  // namespace distsetup
