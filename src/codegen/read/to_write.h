// From fields that were read to fields that a target is written with.
#pragma once
#include "codegen/read/reading.h"
#include "codegen/tables/fields.h"

namespace distsetup {

// Derived fields filled in, plan defaults where a file says nothing and a form needs a value.
Fields fields_to_write(const ReadFields& fields);

}  // namespace distsetup
