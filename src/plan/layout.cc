#include "plan/layout.h"

#include <algorithm>

#include "base/check.h"
#include "plan/native_program.h"

namespace distsetup {
namespace {

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

UnitLayout make_unit(const Program& program, const std::string& prefix, const Symbols& symbols) {
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
  const NativePrograms programs = native_programs(geometry);
  const Symbols symbols = native_symbols(geometry, 1, 1);
  Layout layout;
  layout.shard_ranks = shard_ranks;
  layout.units.push_back(make_unit(programs.embedding, "", symbols));
  for (int64_t i = 0; i < geometry.num_layers; ++i)
    layout.units.push_back(make_unit(programs.block, fmt::format("model.layers.{}.", i), symbols));
  layout.units.push_back(make_unit(programs.head, "", symbols));
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
