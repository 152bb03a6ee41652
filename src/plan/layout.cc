#include "plan/layout.h"

#include <algorithm>

#include "base/check.h"
#include "plan/native_program.h"

namespace distsetup {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

std::string prefix_of(const Program& program, int64_t layer) {
  constexpr std::string_view kLayer = "{layer}";
  std::string prefix = program.prefix;
  if (const size_t at = prefix.find(kLayer); at != std::string::npos) prefix.replace(at, kLayer.size(), std::to_string(layer));
  return prefix;
}

UnitLayout make_unit(const Program& program, int64_t layer, const Symbols& symbols) {
  const std::string prefix = prefix_of(program, layer);
  UnitLayout unit;
  unit.kind = program.kind;
  for (const ParameterDecl& decl : program.parameters) {
    Parameter p;
    p.name = prefix + decl.name;
    p.numel = 1;
    for (const std::string& e : decl.shape) {
      p.shape.push_back(evaluate(e, symbols));
      p.numel *= p.shape.back();
    }
    p.offset = unit.numel;
    p.decay = decl.decay;
    p.init = decl.init;
    p.order = decl.order;
    p.transposed = decl.transposed;
    if (unit.slots.empty() || unit.slots.back().name != decl.slot) {
      unit.slots.push_back({decl.slot, p.offset, p.shape});
    } else {
      unit.slots.back().shape[0] += p.shape[0];
    }
    unit.numel += p.numel;
    unit.parameters.push_back(std::move(p));
  }
  return unit;
}

}  // namespace

Layout make_layout(const Geometry& geometry, int shard_ranks) {
  CHECK(shard_ranks >= 1);
  const std::shared_ptr<const NativePrograms> programs = native_programs(geometry);
  const Symbols symbols = native_symbols(geometry, 1, 1);
  Layout layout;
  layout.shard_ranks = shard_ranks;
  layout.units.push_back(make_unit(programs->embedding, 0, symbols));
  for (int64_t i = 0; i < geometry.num_layers; ++i) layout.units.push_back(make_unit(programs->block(i), i, symbols));
  layout.units.push_back(make_unit(programs->head, 0, symbols));
  for (UnitLayout& unit : layout.units) {
    unit.shard_numel = round_up((unit.numel + shard_ranks - 1) / shard_ranks, kShardAlignment);
    unit.shard_offset = layout.shard_numel;
    unit.gathered_offset = layout.gathered_numel;
    layout.shard_numel += unit.shard_numel;
    layout.gathered_numel += unit.shard_numel * shard_ranks;
    layout.numel += unit.numel;
  }
  return layout;
}

int64_t published_element(const Parameter& p, const Geometry& g, int64_t element) {
  const int64_t width = p.shape.size() > 1 ? p.shape[1] : 1;
  int64_t row = element / width;
  const int64_t column = element % width;
  if (p.order == RowOrder::kGrouped) {  // [q of group 0 .., k of group 0, v of group 0, q of group 1 ..], d rows each
    const int64_t d = g.head_size, group_size = g.num_heads / g.num_kv_heads, head = row / d;
    const bool is_q = head < g.num_heads;
    const int64_t group = is_q ? head / group_size : (head - g.num_heads) % g.num_kv_heads;
    const int64_t inside = is_q ? head % group_size : group_size + (head - g.num_heads) / g.num_kv_heads;
    row = (group * (group_size + 2) + inside) * d + row % d;
  }
  return p.transposed ? column * p.shape[0] + row : row * width + column;
}

ElementRange owned_range(const UnitLayout& unit, int index) {
  const int64_t begin = std::min(unit.numel, index * unit.shard_numel);
  return {begin, std::min(unit.numel, begin + unit.shard_numel)};
}

int64_t Box::numel() const {
  int64_t n = 1;
  for (const int64_t s : size) n *= s;
  return n;
}

std::vector<Box> boxes_of(const UnitLayout& unit, const Parameter& p, int index) {
  const ElementRange own = owned_range(unit, index);
  const int64_t begin = std::max(own.begin, p.offset), end = std::min(own.end, p.offset + p.numel);
  std::vector<Box> boxes;
  if (begin >= end) return boxes;
  const auto add = [&](int64_t from, int64_t to, std::vector<int64_t> start, std::vector<int64_t> size) {
    if (from < to) boxes.push_back({std::move(start), std::move(size), unit.shard_offset + (p.offset + from - own.begin)});
  };
  const int64_t from = begin - p.offset, to = end - p.offset;
  if (p.shape.size() == 1) {
    add(from, to, {from}, {to - from});
    return boxes;
  }
  CHECK(p.shape.size() == 2, "parameter {}", p.name);
  const int64_t width = p.shape[1];
  const int64_t first_row = (from + width - 1) / width, last_row = to / width;  // whole rows [first_row, last_row)
  if (first_row > last_row) {                                                   // inside one row
    add(from, to, {from / width, from % width}, {1, to - from});
    return boxes;
  }
  add(from, first_row * width, {from / width, from % width}, {1, first_row * width - from});
  add(first_row * width, last_row * width, {first_row, 0}, {last_row - first_row, width});
  add(last_row * width, to, {last_row, 0}, {1, to - last_row * width});
  return boxes;
}

std::vector<DecayRange> decay_ranges(const Layout& layout, int index) {
  std::vector<DecayRange> ranges;
  for (const UnitLayout& unit : layout.units) {
    const ElementRange own = owned_range(unit, index);
    for (const Parameter& p : unit.parameters) {
      const int64_t begin = std::max(own.begin, p.offset), end = std::min(own.end, p.offset + p.numel);
      if (begin >= end) continue;
      const int64_t from = unit.shard_offset + begin - own.begin, to = from + end - begin;
      if (!ranges.empty() && ranges.back().end == from && ranges.back().decay == p.decay)
        ranges.back().end = to;
      else
        ranges.push_back({from, to, p.decay});
    }
  }
  return ranges;
}

}  // namespace distsetup
