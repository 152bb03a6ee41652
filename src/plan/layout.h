// Layout: where each parameter's elements live. One flat buffer per unit, in program order; every shard rank owns one equal, aligned
// chunk of each unit's buffer, the last ones padded. A rank's chunks of all units lie one after the other in one flat shard buffer
// (master, gradient, each moment): one AdamW call per decay class, one norm pass. Every element is covered exactly once.
// Shard boundaries fall on elements, not rows: equal chunks keep collectives regular; a piece of a parameter is up to three boxes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/geometry.h"
#include "plan/plan.h"
#include "plan/program.h"

namespace distsetup {

inline constexpr int64_t kShardAlignment = 16;  // elements; 64 bytes of fp32

struct Parameter {
  std::string name;  // published: "model.layers.3.self_attn.q_proj.weight"
  std::vector<int64_t> shape;
  int64_t offset = 0;  // elements, inside the unit's flat buffer
  int64_t numel = 0;
  bool decay = true;
  ParameterDecl::Init init = ParameterDecl::Init::kNormal;
  RowOrder order = RowOrder::kPlain;
  bool transposed = false;
};
struct Slot {
  std::string name;  // "wqkv"
  int64_t offset = 0;
  std::vector<int64_t> shape;  // rows of its parameters added
};
struct UnitLayout {
  UnitKind kind = UnitKind::kBlock;
  std::vector<Parameter> parameters;
  std::vector<Slot> slots;
  int64_t numel = 0;            // valid elements
  int64_t shard_numel = 0;      // per rank, padded: multiple of kShardAlignment
  int64_t shard_offset = 0;     // of this unit in a rank's flat shard buffer, elements
  int64_t gathered_offset = 0;  // of this unit in a buffer that holds every unit gathered, elements
};
struct Layout {
  int shard_ranks = 1;
  std::vector<UnitLayout> units;  // embedding, blocks, head
  int64_t shard_numel = 0;        // a rank's flat shard
  int64_t gathered_numel = 0;     // all units gathered, padding included
  int64_t numel = 0;              // parameters of the model
};

Layout make_layout(const Geometry& geometry, int shard_ranks);

// Where element `element` of a parameter (row-major, in the program's order) stands in the published tensor, which may order its rows
// otherwise or be transposed.
int64_t published_element(const Parameter& parameter, const Geometry& geometry, int64_t element);

// Half-open range of valid elements of unit `unit` that shard rank `index` owns; empty past the end.
struct ElementRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
ElementRange owned_range(const UnitLayout& unit, int index);

// A parameter's piece on one rank as boxes: `start` and `size` per dimension; `offset` into the rank's flat shard.
struct Box {
  std::vector<int64_t> start, size;
  int64_t shard_offset = 0;
  int64_t numel() const;
};
std::vector<Box> boxes_of(const UnitLayout& unit, const Parameter& parameter, int index);

// Contiguous stretches of a rank's flat shard that share the decay flag, in order: AdamW's tensor list.
struct DecayRange {
  int64_t begin = 0, end = 0;
  bool decay = true;
};
std::vector<DecayRange> decay_ranges(const Layout& layout, int index);

}  // namespace distsetup
