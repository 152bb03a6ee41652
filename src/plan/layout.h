// Layout: where each parameter's elements live. One flat buffer per unit, in program order; every shard rank owns one equal, aligned
// chunk of each unit's buffer, the last ones padded. A rank's chunks of all units lie one after the other in one flat shard buffer
// (master, gradient, each state of the optimizer): one update, one norm pass. Every element is covered exactly once.
// With tensor parallelism a unit's buffer holds this rank's piece of each matrix, and is sharded over dp_shard. What is not split
// (norms, some biases) lies in one more unit, the shared one, sharded over dp_shard and tp together: each element has one owner, and
// the reduction that brings the gradients of the data ranks brings those of the tensor-parallel ranks' tokens too. A stage of a
// pipeline that has several parts of the model has a shared unit of each: their gradients are complete at different times.
// Context-parallel ranks have the same parameters: these are sharded over cp as well as dp_shard, unless the plan is ddp, which shards
// nothing; then cp ranks are replicas.
// With expert or tensor parallelism the experts of a block lie in an expert unit of its own, behind the blocks: a rank's buffer holds
// the matrices of its own experts whole, and is sharded over the ranks that have the same ones, those of tp among them. Which experts
// these are depends on the rank: the unit lists all, and those that other ranks hold lie at the same offsets.
// Where not all parameters are trained (tuning.h), those that have no gradient lie in frozen units, one behind each unit that has
// some, and one more for its experts. They are held in the compute type in a flat shard of their own, which nothing changes: over the
// shard group with zero3, else whole. The reference of preference pairs may have a copy of what is trained (reference.h): it lies in
// reference units, which are frozen ones too. Matrices that are held as nf4 (nf4.h) lie in quantized units, which are frozen ones
// whose elements are bytes: offsets, sizes and shards of such a unit count them, and a parameter's `numel` does not. In a pipeline
// each stage has a layout of its own, with the same units: those of other stages are empty. Shard boundaries fall on elements, not
// rows: equal chunks keep collectives regular; a piece of a parameter is up to three boxes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "model/geometry.h"
#include "plan/nf4.h"
#include "plan/plan.h"
#include "plan/program.h"
#include "plan/tuning.h"

namespace distsetup {

inline constexpr int64_t kShardAlignment = 16;  // elements; 64 bytes of fp32

struct Parameter {
  std::string name;                 // published: "model.layers.3.self_attn.q_proj.weight"
  std::vector<int64_t> shape;       // of the piece that a tensor-parallel rank holds, padding included
  std::vector<int64_t> full_shape;  // of the whole
  int64_t offset = 0;               // elements, inside the unit's flat buffer
  int64_t numel = 0;                // of the piece
  // Dimension that tensor parallelism splits (-1: none), over how many ranks, and the sizes of the stretches of it that are split one
  // by one: q, k and v of a fused matrix. A stretch that the ranks do not divide is padded on the last ones (the vocabulary's rows).
  int split_dim = -1;
  int split_ranks = 1;
  std::vector<int64_t> parts;
  bool decay = true;
  bool trains = true;     // ParameterDecl::trains
  bool balances = false;  // ParameterDecl::balances
  int expert_place = -1;  // in the ep group, of the rank that has it; -1: every rank has it
  ParameterDecl::Init init = ParameterDecl::Init::kNormal;
  RowOrder order = RowOrder::kPlain;
  bool transposed = false;
  int64_t published_rows = 0;  // of a vector that is published as a matrix of so many rows; 0: it is not
  int64_t stacked_at = -1;  // of what one published tensor holds for all experts: whose it is (ParameterDecl::stacked); -1: it is not
};
struct Slot {
  std::string name;  // "wqkv"
  int64_t offset = 0;
  std::vector<int64_t> shape;  // rows of its parameters added
};
struct UnitLayout {
  UnitKind kind = UnitKind::kBlock;
  bool is_frozen = false;
  bool is_quantized = false;  // and its elements are bytes
  bool is_reference = false;  // a frozen unit: the reference's copy of what is trained in another
  bool is_expert = false;     // of experts, frozen or not
  bool is_copy = false;       // a tied embedding beside the head of a pipeline's last stage: the first stage owns it
  std::vector<Parameter> parameters;
  std::vector<Slot> slots;
  Group shard_group = Group::kDpShard, replica_group = Group::kDpReplicate;
  int shard_ranks = 1;          // of the shard group
  int64_t numel = 0;            // valid elements
  int64_t shard_numel = 0;      // per rank, padded: multiple of kShardAlignment
  int64_t shard_offset = 0;     // of this unit in a rank's flat shard buffer (a frozen one's in the frozen shard), elements
  int64_t gathered_offset = 0;  // of this unit in a buffer that holds every unit gathered, elements
};
struct Layout {
  Geometry geometry;
  Tuning tuning;
  Mesh mesh;
  Sharding sharding = Sharding::kZero3;
  // What shards a tensor-parallel rank's parameters; the ranks that hold copies; those that share the states of one copy of the model.
  // Of experts the units say themselves.
  Group shard_group = Group::kDpShard, replica_group = Group::kDpReplicate, state_group = Group::kDpShard;
  int stage = 0, chunks_per_stage = 1;   // of a pipeline; units that another stage has are empty here
  std::vector<UnitLayout> units;         // embedding, blocks, head; the shared ones; experts, frozen, quantized, reference ones
  std::vector<int> shared_units;         // of each unit that has a program, where what it shares lies; -1: nowhere
  std::vector<int> frozen_units;         // the same; -1: it has none
  std::vector<int> expert_units;         // the same
  std::vector<int> frozen_expert_units;  // the same
  std::vector<int> quantized_units;      // the same
  std::vector<int> reference_units;      // the same, of a plan whose reference has a copy of its own
  int num_programs = 0;                  // units that have a program: all but the shared ones
  int64_t shard_numel = 0;               // a rank's flat shard
  int64_t gathered_numel = 0;            // all units with a program gathered, padding included
  int64_t frozen_numel = 0;              // a rank's flat shard of what is frozen
  int64_t quantized_bytes = 0;           // a rank's flat shard of what is held as nf4
  int64_t numel = 0;                     // parameters of the model, adapters included
  int64_t trained_numel = 0;             // of them those that change
  int64_t trained_expert_numel = 0;      // and of these those that lie in expert units
  int64_t frozen_expert_numel = 0;       // of those that do not change: in frozen units of experts
  int64_t stored_numel = 0;              // and those that checkpoints hold: all but what lies in frozen units
  int64_t quantized_numel = 0;           // and those that are held as nf4
  int64_t hidden_numel = 0;              // of the model's trained ones: in matrices of blocks, which Muon takes (update_layout.h)
  int64_t factored_numel = 0;            // rows and columns of what is trained, and elements of vectors: Adafactor's means

  int shared_unit(int unit) const { return shared_units[static_cast<size_t>(unit)]; }
  bool is_shared(int unit) const { return units[static_cast<size_t>(unit)].kind == UnitKind::kShared; }
  int expert_unit(int unit) const { return expert_units[static_cast<size_t>(unit)]; }
  int frozen_unit(int unit) const { return frozen_units[static_cast<size_t>(unit)]; }
  int frozen_expert_unit(int unit) const { return frozen_expert_units[static_cast<size_t>(unit)]; }
  int reference_unit(int unit) const { return reference_units[static_cast<size_t>(unit)]; }
  int quantized_unit(int unit) const { return quantized_units[static_cast<size_t>(unit)]; }
  // Does a step change any parameter? A stage of a pipeline may have none such.
  bool is_trained() const {
    return std::any_of(units.begin(), units.end(), [](const UnitLayout& u) { return u.numel > 0 && !u.is_frozen; });
  }
  // Is this stage one of the two that have a tied embedding, whose gradients are added up?
  bool sums_tied_over_stages() const { return mesh.pp > 1 && geometry.tied_embeddings && units.front().numel > 0; }
};

// dp_shard, and cp unless the plan is ddp, where expert parallelism may leave dp_shard ranks that shard nothing but experts
Group shard_group(const Mesh& mesh, Sharding sharding);
Group replica_group(const Mesh& mesh, Sharding sharding);  // dp_replicate, and what of dp_shard and cp does not shard
Group shared_group(const Mesh& mesh, Sharding sharding);   // the shard group and tp: what tensor parallelism does not split
Group expert_group(const Mesh& mesh, Sharding sharding);   // ranks that have the same experts: these, or what ep leaves of them
Group state_group(const Mesh& mesh, Sharding sharding);    // these, and all stages of a pipeline
Layout make_layout(const Geometry& geometry, const Mesh& mesh, Sharding sharding = Sharding::kZero3, int stage = 0,
                   int chunks_per_stage = 1, const Tuning& tuning = {}, bool keeps_reference = false);
Layout make_layout(const Plan& plan, int stage = 0);

// Name of unit `unit`'s slot in its shared unit.
std::string shared_slot(int unit, std::string_view slot);
// Has another rank of those that share states the same elements of this unit, and is the first? Checkpoints and the norm take them
// from that one.
bool is_copy_of_another(const Layout& layout, const UnitLayout& unit, const Coordinates& at);
// Which chunk of the unit a rank owns.
int shard_index(const Layout& layout, const UnitLayout& unit, const Coordinates& at);

int64_t full_numel(const Parameter& parameter);
// Where element `element` of tensor-parallel rank tp_index's piece (row-major) stands in the whole; -1: padding.
int64_t full_element(const Parameter& parameter, int tp_index, int64_t element);
// Rows and columns of a matrix; elements of a vector.
int64_t num_factors(const Parameter& parameter);
// A trained matrix of a block: what Muon takes. It leaves embedding, head, norms and biases to AdamW.
inline bool is_hidden_matrix(UnitKind kind, const Parameter& p) {
  return kind == UnitKind::kBlock && p.trains && p.full_shape.size() == 2;
}

// Half-open range of valid elements of unit `unit` that shard rank `index` owns; empty past the end.
struct ElementRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
ElementRange owned_range(const UnitLayout& unit, int index);
// Of a parameter what this rank owns, as a stretch of the unit; empty: nothing, or another rank has the expert.
ElementRange owned_part(const Layout& layout, const UnitLayout& unit, const Parameter& parameter, const Coordinates& at);

// A parameter's piece on one rank as boxes of the whole: `start` and `size` per dimension; `shard_offset` into the rank's flat shard.
struct Box {
  std::vector<int64_t> start, size;
  int64_t shard_offset = 0;
  int64_t numel() const;
};
// Of a quantized unit there are none: its records are made of whole matrices.
std::vector<Box> boxes_of(const Layout& layout, const UnitLayout& unit, const Parameter& parameter, const Coordinates& at);
// How a rank's record of a parameter of a quantized unit lies in memory.
Nf4Record record_of(const Parameter& parameter);
// What this rank has of a record of a quantized unit, in bytes of the record; empty: nothing. The first of them lies in the rank's
// flat shard of what is held as nf4 at `shard_offset`.
struct OwnedBytes {
  ElementRange range;
  int64_t shard_offset = 0;
};
OwnedBytes owned_bytes(const Layout& layout, const UnitLayout& unit, const Parameter& parameter, const Coordinates& at);

}  // namespace distsetup
