// A config.json by its text, for tests of what is read out of one.
#pragma once
#include <string>

#include "base/value_json.h"
#include "model/count.h"
#include "model/hf_config.h"
#include "support/presets.h"

namespace distsetup {

inline Result<Geometry> read(const std::string& text, const std::string& directory = "") {
  return geometry_from_hf_config(presets(), *parse_json(text, "config.json"), "mine", directory);
}

inline double share(const Geometry& g, double parameters) { return static_cast<double>(count_parameters(g).total) / parameters; }

}  // namespace distsetup
