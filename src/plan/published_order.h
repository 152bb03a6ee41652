// How a whole parameter, as programs have it, stands in the published tensor.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/geometry.h"
#include "plan/layout.h"

namespace distsetup {

// The tensor that has it: most have their name; those of experts that are stacked together, the name without the expert's number.
std::string published_name(const Parameter& parameter);

// Where element `element` of a whole parameter (row-major, in the program's order) stands in the published tensor, which may order
// its rows otherwise or be transposed.
int64_t published_element(const Parameter& parameter, const Geometry& geometry, int64_t element);
int64_t published_row(const Parameter& parameter, const Geometry& geometry, int64_t row);  // of a row of the whole, before transposing
std::vector<int64_t> published_shape(const Parameter& parameter);                          // of what is stacked: of one expert
// One expert's matrix of a file has this shape, and is not transposed, though it is published so: Transformers reads stacked experts
// either way (Transpose with check_dims in conversion_mapping.py), and writes Qwen3-VL's as its modules hold them.
bool is_stored_straight(const Parameter& parameter, const std::vector<int64_t>& shape);

}  // namespace distsetup
