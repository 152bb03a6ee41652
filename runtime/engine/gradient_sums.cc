#include "runtime/engine/gradient_sums.h"

#include "plan/layout_ranges.h"

namespace distsetup {

void accumulate(const Call& call, const Layout& layout, int number, const Coordinates& at, const Kernels& kernels) {
  const UnitLayout& unit = layout.units[size_t(number)];
  const bool reduce = call.reads.size() == 2;
  const bool is_own = numel(call.reads[0]) == unit.shard_numel;  // its own elements alone, of which the padding is nobody's
  const int64_t own_index = shard_index(layout, unit, at);
  const int64_t size = reduce ? unit.shard_ranks : 1, index = reduce ? own_index : 0;
  const int64_t valid = reduce || is_own ? owned_range(unit, int(own_index)).size() : unit.numel;
  const Argument& own = call.reads[0];
  kernels.sum_chunks(static_cast<float*>(call.writes[0].data), own.data, reduce ? call.reads[1].data : nullptr, own.dtype, size, index,
                     numel(own), valid, call.accumulate);
}

void gradient_norm(const Call& call, const Layout& layout, const Coordinates& at, const Kernels& kernels) {
  std::vector<Kernels::ElementRange> ranges;
  for (const ElementRange& range : norm_ranges(layout, at)) ranges.push_back({range.begin, range.end});
  kernels.sum_of_squares(static_cast<const float*>(call.reads[0].data), ranges, static_cast<double*>(call.writes[0].data));
}

}  // namespace distsetup
