// Numbers and names that the trainers' own formats ask for and plan.json does not spell out (derived.* of fields.h).
#pragma once
#include "codegen/tables/fields.h"
#include "plan/plan.h"

namespace distsetup {

void set_trainer_fields(Fields& fields, const Plan& plan);

}  // namespace distsetup
