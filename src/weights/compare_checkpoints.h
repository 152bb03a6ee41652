// Two checkpoints, parameter by parameter, whatever meshes wrote them. Memory: two pieces of kComparedValues values.
#pragma once
#include <string>
#include <vector>

#include "weights/stored_checkpoint.h"

namespace distsetup {

inline constexpr int64_t kComparedValues = 4 << 20;

struct ParameterDifference {
  std::string name;     // with the state's suffix
  std::string only_in;  // "a" or "b": the other has no such parameter, or another shape; nothing was compared
  int64_t numel = 0;
  int64_t num_different = 0;  // whose bits differ
  double largest = 0;         // |a - b|; NaN where one of them is no number and the other is
  double relative = 0;        // norm of a - b over the norm of a; 0 / 0 is 0
};

// Every state of every parameter of either, in the order of names. Errors: a file that cannot be read, elements that no file holds.
Result<std::vector<ParameterDifference>> compare_checkpoints(StoredCheckpoint& a, StoredCheckpoint& b);

}  // namespace distsetup
