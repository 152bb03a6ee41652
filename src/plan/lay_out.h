// Which parameters each unit of a layout has, and where.
#pragma once
#include "plan/layout.h"

namespace distsetup {

// sizes_alone: units and their slots without the parameters in them, where all are trained and nobody keeps a copy of them.
Layout lay_out(const Geometry& geometry, const Mesh& mesh, Sharding sharding, int stage, int chunks_per_stage, const Tuning& tuning,
               bool keeps_reference, bool sizes_alone);

}  // namespace distsetup
