// A geometry from a Hugging Face config.json.
#pragma once
#include <string>

#include "base/value.h"
#include "model/geometry.h"

namespace distsetup {

// `config` is the parsed file. Unknown model_type: kUnsupportedArchitecture with the list.
Result<Geometry> geometry_from_hf_config(const Value& config, const std::string& name);

}  // namespace distsetup
