// A setup's program as units and traces: what is gathered at once, which layers are walked, and the events inside of each.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/count.h"
#include "planner/frameworks/fsdp.h"
#include "planner/frameworks/fsdp_engine.h"
#include "planner/frameworks/state_bytes.h"
#include "planner/replay/program_file.h"
#include "planner/replay/tape.h"

namespace distsetup::replay {

// What a rank of a pipeline holds besides its share of the blocks. kWhole: no pipeline; kSecond: neither embedding nor head.
enum class PipelinePart { kWhole, kFirst, kSecond, kLast };

// Blocks with experts, and blocks without.
struct BlockKind {
  uint64_t facts = 0;
  bool present = false;
  UnitWeights unit, experts;  // experts: a unit of their own under expert parallelism, else empty
  std::vector<int> places;    // section weight -> index in its unit; -1: not there; from kExpertPlace down: index in `experts`
  Trace kept, recomputed;     // kept: of blocks without recompute, or of those in 16 bits beside nvfp4
};
inline constexpr int kExpertPlace = -2;

class FsdpModel {
 public:
  FsdpModel(const Setup& setup, Blocks which, PipelinePart rank_part);
  FsdpModel(const FsdpModel&) = delete;  // units point into it
  // The sections' events once more, for micro-batches of another length.
  void set_sequence(int64_t micro_batch, int64_t sequence_length);

  bool is_recomputed(int64_t layer) const {
    if (s.recompute == ActivationRecompute::kEveryK)
      return layer % std::max(s.recompute_every_k, 1) == std::max(s.recompute_every_k, 1) - 1;
    return s.recompute != ActivationRecompute::kNone;
  }
  // Under op-selective recompute in nvfp4 the last 15 % of the blocks stay in 16 bits (torchtitan components/quantization/nvfp4.md);
  // their products are on the list of what is kept, nvfp4's own kernels are not.
  bool has_blocks_in_16_bits() const { return s.fp8 == Fp8Recipe::kNvfp4 && s.recompute == ActivationRecompute::kOpSelective; }
  bool stays_in_16_bits(int64_t layer) const { return has_blocks_in_16_bits() && layer >= s.model.num_layers * 85 / 100; }
  // Inputs of a block's parts that are recomputed by themselves, but for the block's own.
  int64_t parts_bytes(size_t i) const {
    return s.recompute == ActivationRecompute::kFull && is_recomputed(layers[i]) ? (s.recompute_parts - 1) * residual_bytes : 0;
  }
  bool has_embedding() const { return part == PipelinePart::kWhole || part == PipelinePart::kFirst; }
  bool has_head() const { return part == PipelinePart::kWhole || part == PipelinePart::kLast; }
  int shards() const { return s.sharding == Sharding::kDdp ? 1 : s.dp_shard * s.cp; }
  // Parameters that wait in host memory come unit by unit, one rank or many.
  bool unsharded() const { return s.traits().never_shards || (shards() == 1 && s.offload.parameters == OffloadPlace::kNone); }
  // torchtitan's dp_shard_mod_ep: what is left of the ranks that share a stage once experts have taken theirs.
  int expert_shards() const { return std::max(1, s.dp_shard * s.cp * s.tp / s.ep); }
  bool experts_apart() const { return s.ep > 1 && s.traits().experts_borrow_tensor_ranks && !unsharded(); }

  bool has_buckets() const { return s.traits().never_shards && s.dp_replicate > 1; }
  bool offloads_activations() const { return s.offload.activations != OffloadPlace::kNone; }

  ShardedUnit& block_unit(size_t i) { return units[first_block + i]; }
  ShardedUnit* experts_unit(size_t i) { return expert_units[i] < 0 ? nullptr : &units[static_cast<size_t>(expert_units[i])]; }
  const BlockKind& block_kind(size_t i) const { return blocks[is_expert_layer(s.model, layers[i]) ? 1 : 0]; }
  const Trace& block_trace(size_t i) const {
    return is_recomputed(layers[i]) && !stays_in_16_bits(layers[i]) ? block_kind(i).recomputed : block_kind(i).kept;
  }

  const Setup& s;
  const PipelinePart part;
  const StateBytes state;
  LossHead loss = LossHead::kEager;
  const BlockProgram* program = nullptr;
  SymbolValues symbols{};
  uint64_t facts = 0;
  UnitWeights embedding_kind, head_kind;  // embedding_kind: the root's when the head is in it
  BlockKind blocks[2];                    // without, with experts
  bool head_apart = false, embedding_apart = false;
  std::vector<int> embedding_places, head_places;
  Trace embedding_trace, head_trace;
  std::vector<ShardedUnit> units;
  std::vector<int64_t> layers;    // that are walked
  std::vector<int64_t> left_out;  // how many more layers each of them stands for
  std::vector<int> expert_units;  // of each walked layer; -1: none
  size_t first_block = 0, embedding_unit = 0, head_unit = 0;
  int64_t residual_bytes = 0;
  int64_t num_tokens = 0;      // of the micro-batch that runs, on this rank
  bool retains = false;        // inputs of recomputed blocks and their gradients, until backward is over
  bool gathers_ahead = false;  // by name: the next block, with its experts

 private:
  void prepare();
  void trace();
  void make_kind(const ProgramSection& section, uint64_t facts, UnitWeights& kind, std::vector<int>& places,
                 UnitWeights* experts = nullptr) const;
  UnitWeight make_weight(const ProgramWeight& weight, bool is_trained, int shard, bool any_dimension) const;
  int copies_of(const ProgramWeight& weight) const;
  void make_block(BlockKind& kind);
  void trace_block(BlockKind& kind, const TraceOptions& keep);
  int64_t layers_of(PipelinePart rank_part) const;
  void choose_layers(Blocks which);
  void make_units(Blocks which);
  std::vector<bool> trained(const ProgramSection& section) const;
};

// Bytes that one value per element makes of `elements`.
inline int64_t as_bytes(double per_element, int64_t elements) {
  return static_cast<int64_t>(per_element * static_cast<double>(elements));
}

}  // namespace distsetup::replay
