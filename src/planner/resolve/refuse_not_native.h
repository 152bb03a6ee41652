// Settings that only other trainers have, refused for the bundled one by name, with a trainer that has them.
#pragma once
#include "planner/spec/spec.h"

namespace distsetup {

Diagnostics refuse_not_native(const Spec& spec);

}  // namespace distsetup
