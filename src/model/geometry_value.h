// A geometry in our own words.
#pragma once
#include <string>

#include "base/value.h"
#include "model/geometry.h"
#include "model/presets.h"

namespace distsetup {

// The inline keys of `model:` or a preset file; a key is a field of Geometry.
// `presets` know the families.
Result<Geometry> geometry_from_value(const Presets& presets, const Value& value, const std::string& name);

}  // namespace distsetup
