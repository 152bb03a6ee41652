#include "plan/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "plan/lay_out.h"
#include "plan/reference.h"

namespace distsetup {
namespace {

// Sizes of a part along the split dimension on one rank.
int64_t piece_of(int64_t part, int ranks) { return (part + ranks - 1) / ranks; }

// Moves a box of a rank's piece to where it stands in the whole, cut where parts meet; without padding.
void place_box(const Parameter& p, int tp_index, const Box& local, std::vector<Box>& boxes) {
  if (p.split_dim < 0) return boxes.push_back(local);
  const size_t d = static_cast<size_t>(p.split_dim);
  const int64_t begin = local.start[d], end = begin + local.size[d], stride = local.numel() / local.size[d];
  CHECK(d == 0 || p.parts.size() == 1, "parameter {}", p.name);
  int64_t part_local = 0, part_full = 0;
  for (const int64_t part : p.parts) {
    const int64_t piece = piece_of(part, p.split_ranks), first = tp_index * piece;
    const int64_t valid = std::clamp<int64_t>(part - first, 0, piece);
    const int64_t from = std::max(begin, part_local), to = std::min(end, part_local + valid);
    if (from < to) {
      Box box = local;
      box.start[d] = part_full + first + from - part_local;
      box.size[d] = to - from;
      box.shard_offset += d == 0 ? (from - begin) * stride : 0;
      boxes.push_back(std::move(box));
    }
    part_local += piece;
    part_full += part;
  }
}

}  // namespace

std::string shared_slot(int unit, std::string_view slot) { return fmt::format("{}/{}", unit, slot); }

int shard_index(const Layout& layout, const UnitLayout& unit, const Coordinates& at) {
  return group_index(layout.mesh, unit.shard_group, at);
}

Group shard_group(const Mesh& mesh, Sharding sharding) {
  if (mesh.ep > 1 && sharding == Sharding::kDdp) return Group::kSelf;
  return mesh.cp > 1 && sharding != Sharding::kDdp ? Group::kDpShard | Group::kCp : Group::kDpShard;
}

Group replica_group(const Mesh& mesh, Sharding sharding) {
  if (mesh.ep > 1 && sharding == Sharding::kDdp) return token_group(mesh);
  return mesh.cp > 1 && sharding == Sharding::kDdp ? Group::kDpReplicate | Group::kCp : Group::kDpReplicate;
}

Group shared_group(const Mesh& mesh, Sharding sharding) {
  return mesh.tp > 1 ? shard_group(mesh, sharding) | Group::kTp : shard_group(mesh, sharding);
}

Group expert_group(const Mesh& mesh, Sharding sharding) { return mesh.ep > 1 ? Group::kExpertData : shared_group(mesh, sharding); }

Group state_group(const Mesh& mesh, Sharding sharding) {
  const bool splits_experts_alone = mesh.ep > 1 && sharding == Sharding::kDdp;
  const Group states = shared_group(mesh, splits_experts_alone ? Sharding::kZero1 : sharding);
  return mesh.pp > 1 ? states | Group::kPp : states;
}

Layout make_layout(const Plan& plan, int stage) {
  return make_layout(plan.model, plan.mesh, plan.strategy.sharding, stage, plan.strategy.virtual_stages, tuning_of(plan.train),
                     keeps_reference(plan.train));
}

Layout make_layout(const Geometry& geometry, const Mesh& mesh, Sharding sharding, int stage, int chunks_per_stage,
                   const Tuning& tuning, bool keeps_reference) {
  return lay_out(geometry, mesh, sharding, stage, chunks_per_stage, tuning, keeps_reference, false);
}

int64_t full_numel(const Parameter& p) {
  int64_t n = 1;
  for (const int64_t size : p.full_shape) n *= size;
  return n;
}

Nf4Record record_of(const Parameter& p) { return nf4_record(p.numel, p.split_dim >= 0 ? p.split_ranks : 1); }

int64_t full_element(const Parameter& p, int tp_index, int64_t element) {
  if (p.split_dim < 0) return element;
  const int64_t width = p.shape.size() > 1 ? p.shape[1] : 1, full_width = p.full_shape.size() > 1 ? p.full_shape[1] : 1;
  int64_t row = element / width, column = element % width;
  int64_t& at = p.split_dim == 0 ? row : column;
  int64_t before = 0;
  for (const int64_t part : p.parts) {
    const int64_t piece = piece_of(part, p.split_ranks);
    if (at < piece) {
      const int64_t inside = tp_index * piece + at;
      if (inside >= part) return -1;
      at = before + inside;
      return row * full_width + column;
    }
    at -= piece;
    before += part;
  }
  return -1;
}

ElementRange owned_range(const UnitLayout& unit, int index) {
  const int64_t begin = std::min(unit.numel, index * unit.shard_numel);
  return {begin, std::min(unit.numel, begin + unit.shard_numel)};
}

ElementRange owned_part(const Layout& layout, const UnitLayout& unit, const Parameter& p, const Coordinates& at) {
  if (p.expert_place >= 0 && p.expert_place != group_index(layout.mesh, Group::kEp, at)) return {};
  const ElementRange own = owned_range(unit, shard_index(layout, unit, at));
  const int64_t begin = std::max(own.begin, p.offset), end = std::min(own.end, p.offset + p.numel);
  return begin < end ? ElementRange{begin, end} : ElementRange{};
}

bool is_copy_of_another(const Layout& layout, const UnitLayout& unit, const Coordinates& at) {
  const bool shares_experts_alone = layout.mesh.ep > 1 && layout.sharding == Sharding::kDdp;
  return unit.is_copy || (shares_experts_alone && !unit.is_expert && (at.dp_shard > 0 || at.cp > 0));
}

int64_t num_factors(const Parameter& p) { return p.full_shape.size() == 2 ? p.full_shape[0] + p.full_shape[1] : full_numel(p); }

int64_t Box::numel() const {
  int64_t n = 1;
  for (const int64_t s : size) n *= s;
  return n;
}

OwnedBytes owned_bytes(const Layout& layout, const UnitLayout& unit, const Parameter& p, const Coordinates& at) {
  CHECK(unit.is_quantized, "parameter {}", p.name);
  const ElementRange own = owned_range(unit, shard_index(layout, unit, at));
  const int64_t begin = std::max(own.begin, p.offset), end = std::min(own.end, p.offset + record_of(p).num_bytes);
  if (begin >= end) return {};
  return {{begin - p.offset, end - p.offset}, unit.shard_offset + begin - own.begin};
}

std::vector<Box> boxes_of(const Layout& layout, const UnitLayout& unit, const Parameter& p, const Coordinates& at) {
  CHECK(!unit.is_quantized, "parameter {}", p.name);
  const ElementRange own = owned_range(unit, shard_index(layout, unit, at));
  const auto [begin, end] = owned_part(layout, unit, p, at);
  std::vector<Box> boxes;
  if (begin >= end) return boxes;
  const auto add = [&](int64_t from, int64_t to, std::vector<int64_t> start, std::vector<int64_t> size) {
    if (from < to) place_box(p, at.tp, {std::move(start), std::move(size), unit.shard_offset + (p.offset + from - own.begin)}, boxes);
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

}  // namespace distsetup
