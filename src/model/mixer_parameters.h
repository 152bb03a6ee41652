// Parameters of one layer's mixer where that is not attention, by the sizes that a config.json states.
#pragma once
#include "model/config_sizes.h"
#include "model/geometry.h"

namespace distsetup {

double scan_parameters(const ConfigSizes& sizes, const Geometry& geometry, bool alone);  // `alone`: no layer attends
double linear_parameters(const ConfigSizes& sizes, const Geometry& geometry);

}  // namespace distsetup
