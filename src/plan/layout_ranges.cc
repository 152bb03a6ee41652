#include "plan/layout_ranges.h"

#include <algorithm>

namespace distsetup {

std::vector<DecayRange> decay_ranges(const Layout& layout, const Coordinates& at) {
  std::vector<DecayRange> ranges;
  for (const UnitLayout& unit : layout.units) {
    if (unit.is_frozen) continue;
    const ElementRange own = owned_range(unit, shard_index(layout, unit, at));
    const size_t first = ranges.size();  // none reaches into two units, which may be updated one after the other
    for (const Parameter& p : unit.parameters) {
      const auto [begin, end] = owned_part(layout, unit, p, at);
      if (begin >= end || !p.trains) continue;
      const int64_t from = unit.shard_offset + begin - own.begin, to = from + end - begin;
      const bool is_next = ranges.size() > first && ranges.back().end == from && ranges.back().decay == p.decay;
      if (is_next)
        ranges.back().end = to;
      else
        ranges.push_back({from, to, p.decay});
    }
  }
  return ranges;
}

std::vector<ElementRange> norm_ranges(const Layout& layout, const Coordinates& at) {
  std::vector<ElementRange> ranges;
  for (const UnitLayout& unit : layout.units) {
    if (is_copy_of_another(layout, unit, at) || unit.is_frozen) continue;
    const ElementRange own = owned_range(unit, shard_index(layout, unit, at));
    const bool is_whole = std::all_of(unit.parameters.begin(), unit.parameters.end(), [](const Parameter& p) { return p.trains; });
    if (is_whole) {
      ranges.push_back({unit.shard_offset, unit.shard_offset + own.size()});
      continue;
    }
    for (const Parameter& p : unit.parameters) {
      const auto [begin, end] = owned_part(layout, unit, p, at);
      if (begin < end && p.trains) ranges.push_back({unit.shard_offset + begin - own.begin, unit.shard_offset + end - own.begin});
    }
  }
  return ranges;
}

}  // namespace distsetup
