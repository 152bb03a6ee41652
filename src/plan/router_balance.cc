#include "plan/router_balance.h"

#include <algorithm>

namespace distsetup {

std::vector<ElementRange> balance_ranges(const Layout& layout, const Coordinates& at, int of_unit) {
  std::vector<ElementRange> ranges;
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const UnitLayout& unit = layout.units[u];
    if (unit.is_frozen || (of_unit >= 0 && u != static_cast<size_t>(of_unit))) continue;
    const ElementRange own = owned_range(unit, shard_index(layout, unit, at));
    for (const Parameter& p : unit.parameters) {
      const int64_t begin = std::max(own.begin, p.offset), end = std::min(own.end, p.offset + p.numel);
      if (p.balances && begin < end) ranges.push_back({unit.shard_offset + begin - own.begin, unit.shard_offset + end - own.begin});
    }
  }
  return ranges;
}

namespace {

// Tokens above a share are multiples of 1 / experts, up to rounding.
constexpr float kLeast = 1e-3F;

}  // namespace

void move_corrections(const std::vector<ElementRange>& ranges, double rate, const float* above, float* master) {
  for (const ElementRange& range : ranges)
    for (int64_t i = range.begin; i < range.end; ++i)
      master[i] -= static_cast<float>(above[i] > kLeast ? rate : above[i] < -kLeast ? -rate : 0);
}

}  // namespace distsetup
