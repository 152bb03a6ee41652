// How a whole parameter, as programs have it, stands in the published tensor.
#pragma once
#include <cstdint>
#include <vector>

#include "model/geometry.h"
#include "plan/layout.h"

namespace distsetup {

// Where element `element` of a whole parameter (row-major, in the program's order) stands in the published tensor, which may order
// its rows otherwise or be transposed.
int64_t published_element(const Parameter& parameter, const Geometry& geometry, int64_t element);
int64_t published_row(const Parameter& parameter, const Geometry& geometry, int64_t row);  // of a row of the whole, before transposing
std::vector<int64_t> published_shape(const Parameter& parameter);

}  // namespace distsetup
