#include "planner/frameworks/zero_host.h"

#include <algorithm>
#include <cmath>

#include "planner/frameworks/libraries.h"

namespace distsetup {

// zero/stage_1_and_2.py: master, its gradient and the 16-bit copy are pinned, moments are not. zero/stage3.py pins the gradient
// sub-group by sub-group, and the master not at all.
double host_optimizer_bytes(const Setup& s, double master, double moments) {
  const auto pinned = [&s](double bytes) {
    return s.offload.pin_memory ? static_cast<double>(pinned_bytes(static_cast<int64_t>(bytes))) : bytes;
  };
  const double group = std::min(master, 4 * kZeroSubGroup);
  if (s.offload.optimizer == OffloadPlace::kNvme) return pinned(4 * group);  // buffer_count 4 of the largest (offload_config.py)
  if (s.sharding != Sharding::kZero3) return 2 * pinned(master) + pinned(master / 2) + moments;
  const double groups = group > 0 ? std::floor(master / group) : 0;
  return master + groups * pinned(group) + pinned(master - groups * group) + pinned(master / 2) + moments;
}

}  // namespace distsetup
