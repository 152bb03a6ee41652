// Whether a geometry is a model at all.
#pragma once
#include "base/diagnostic.h"
#include "model/geometry.h"

namespace distsetup {

// Checks what no run can do without: positive sizes, a divisible by k, d even for RoPE, h = a·d unless head_size is stated, ...
Diagnostics validate(const Geometry& geometry, const Location& at);

}  // namespace distsetup
