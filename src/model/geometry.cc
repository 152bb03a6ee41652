// Special members of Geometry, compiled once.
#include "model/geometry.h"

namespace distsetup {

Geometry::Geometry() = default;
Geometry::Geometry(const Geometry&) = default;
Geometry::Geometry(Geometry&&) noexcept = default;
Geometry& Geometry::operator=(const Geometry&) = default;
Geometry& Geometry::operator=(Geometry&&) noexcept = default;
Geometry::~Geometry() = default;

}  // namespace distsetup
