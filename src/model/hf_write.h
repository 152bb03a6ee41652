// A Hugging Face config.json from a geometry: for a model that came from no folder.
#pragma once
#include "base/diagnostic.h"
#include "base/json.h"
#include "model/geometry.h"
#include "model/presets.h"

namespace distsetup {

// Written by the same family file that reads it (presets/families/), and read back: what does not come back as the same geometry is an
// error (kUnsupportedArchitecture), never a config.json of another model. Token ids are null: a geometry has none. `dtype`:
// "bfloat16".
Result<Json> hf_config_of(const Presets& presets, const Geometry& geometry, std::string_view dtype);

}  // namespace distsetup
