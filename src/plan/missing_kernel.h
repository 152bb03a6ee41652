// Kernels that a family of models needs and that do not exist yet (`missing` of presets/programs/native/FAMILY.yaml), and how long a
// sequence may be without them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/geometry.h"

namespace distsetup {

// The model has need of it where all conditions hold, in sequences of more tokens than the size `beyond` of the model says ("": in
// all).
struct MissingKernel {
  std::string kernel;
  std::vector<std::string> when;
  std::string beyond;
};

// The first that is needed in every sequence; nullptr: none.
const MissingKernel* always_missing(const std::vector<MissingKernel>& missing, const Geometry& geometry);

// The longest sequence that a model's program is right for, and what ends there: a table of learned positions, or what a kernel that
// there is not would do beyond. 0 tokens: any.
struct LongestSequence {
  int64_t tokens = 0;
  std::string why;
};
LongestSequence longest_without(const std::vector<MissingKernel>& missing, const Geometry& geometry);

}  // namespace distsetup
