// A geometry in our own words.
#pragma once
#include <string>

#include "base/value.h"
#include "model/geometry.h"

namespace distsetup {

// The inline keys of `model:` or a preset file; a key is a field of Geometry.
Result<Geometry> geometry_from_value(const Value& value, const std::string& name);

}  // namespace distsetup
