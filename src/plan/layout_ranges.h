// What of a rank's flat shard the optimizer and the gradient norm take.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/layout.h"

namespace distsetup {

// Contiguous stretches of a rank's flat shard that are trained and share the decay flag, in order: the optimizer's tensor list.
struct DecayRange {
  int64_t begin = 0, end = 0;
  bool decay = true;
};
std::vector<DecayRange> decay_ranges(const Layout& layout, const Coordinates& at);
// What of a rank's flat shard enters the gradient norm, unit by unit: all of a unit that is trained as a whole is one.
std::vector<ElementRange> norm_ranges(const Layout& layout, const Coordinates& at);

}  // namespace distsetup
