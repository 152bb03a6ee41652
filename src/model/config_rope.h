// Scaled rotary positions of a config.json: `rope_scaling` in older files, `rope_parameters` in newer ones. Sources: Transformers,
// modeling_rope_utils.py and models/phi3/configuration_phi3.py.
#pragma once
#include "base/diagnostic.h"
#include "base/value.h"
#include "model/geometry.h"

namespace distsetup {

// Into the fields rope_…; `geometry` has its sizes already.
void read_rope_scaling(const Value& config, Geometry& geometry, Diagnostics& diagnostics);

}  // namespace distsetup
