// A geometry from a Hugging Face config.json.
#pragma once
#include <string>
#include <string_view>

#include "base/value.h"
#include "model/geometry.h"
#include "model/presets.h"

namespace distsetup {

// Published files hold what Python writes: NaN, Infinity and -Infinity, which no key that is read here says. They become null and 0.
Result<Value> parse_hf_config(std::string text, std::string_view file_name);

// `config` is the parsed file; its model_type names a file of presets/families/, which says how to read it. Unknown:
// kUnsupportedArchitecture with the list. A setting that makes another model than we know is refused by name.
// An architecture that is not known is planned by its sizes (approximate.h), with the parameters of the tensors in `directory`.
Result<Geometry> geometry_from_hf_config(const Presets& presets, const Value& config, const std::string& name,
                                         const std::string& directory = "");

}  // namespace distsetup
