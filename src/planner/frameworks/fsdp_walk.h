// The walk behind fsdp.cc: a setup's program as units and traces, and one step as events of the engine and of the traces in between.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "model/count.h"
#include "planner/frameworks/fsdp.h"
#include "planner/frameworks/fsdp_engine.h"
#include "planner/frameworks/memory.h"
#include "planner/frameworks/state_bytes.h"
#include "planner/replay/allocator.h"
#include "planner/replay/ledger.h"
#include "planner/replay/program_file.h"
#include "planner/replay/tape.h"

namespace distsetup {

namespace replay {

// What a rank of a pipeline holds besides its share of the blocks. kWhole: no pipeline; kSecond: neither embedding nor head.
enum class PipelinePart { kWhole, kFirst, kSecond, kLast };

inline int64_t as_bytes(double per_element, int64_t elements) {
  return static_cast<int64_t>(per_element * static_cast<double>(elements));
}

// Blocks with experts, and blocks without.
struct BlockKind {
  uint64_t facts = 0;
  bool present = false;
  UnitWeights unit, experts;  // experts: a unit of their own under expert parallelism, else empty
  std::vector<int> places;    // section weight -> index in its unit; -1: not there; from kExpertPlace down: index in `experts`
  Trace kept, recomputed;
};
inline constexpr int kExpertPlace = -2;

struct Model {
  const BlockProgram* program = nullptr;
  SymbolValues symbols{};
  uint64_t facts = 0;
  UnitWeights embedding_kind, head_kind;  // embedding_kind: the root's when the head is in it
  BlockKind blocks[2];                    // without, with experts
  bool head_apart = false, embedding_apart = false;
  std::vector<int> embedding_places, head_places;
  Trace embedding, head;
};

// One setup's steps, event by event, booked in a ledger.
class FsdpWalk {
 public:
  FsdpWalk(const Setup& setup, Allocator* allocator, Blocks blocks, PipelinePart stage = PipelinePart::kWhole)
      : s_(setup), stage_(stage), ledger_(allocator), state_(state_bytes(setup)) {
    prepare();
    make_units(blocks);
  }

  void run(int steps);
  // Micro-batches of different lengths (Setup::sample_lengths), in the `order`-th order.
  void run_lengths(int order);
  // After run: the forward of evaluation, which saves nothing, and what a checkpoint is written from.
  void evaluate_and_save();
  const Ledger& ledger() const { return ledger_; }
  void count_host_and_disk(MemoryEstimate& estimate) const;
  // simulate only: the state a step starts from has the moments already.
  void start_steady() { steady_ = true; }

 private:
  bool is_recomputed(int64_t layer) const {
    if (s_.recompute == ActivationRecompute::kEveryK)
      return layer % std::max(s_.recompute_every_k, 1) == std::max(s_.recompute_every_k, 1) - 1;
    return s_.recompute != ActivationRecompute::kNone;
  }
  bool has_embedding() const { return stage_ == PipelinePart::kWhole || stage_ == PipelinePart::kFirst; }
  bool has_head() const { return stage_ == PipelinePart::kWhole || stage_ == PipelinePart::kLast; }
  int shards() const { return s_.sharding == Sharding::kDdp ? 1 : s_.dp_shard * s_.cp; }
  bool unsharded() const { return s_.traits().never_shards || shards() == 1; }
  // torchtitan's dp_shard_mod_ep: what is left of the ranks that share a stage once experts have taken theirs.
  int expert_shards() const { return std::max(1, s_.dp_shard * s_.cp * s_.tp / s_.ep); }
  bool experts_apart() const { return s_.ep > 1 && s_.traits().experts_borrow_tensor_ranks && !unsharded(); }

  bool has_buckets() const { return s_.traits().never_shards && s_.dp_replicate > 1; }
  bool offloads_activations() const { return s_.offload.activations != OffloadPlace::kNone; }

  void prepare();
  void trace();
  void make_kind(const ProgramSection& section, uint64_t facts, UnitWeights& kind, std::vector<int>& places,
                 UnitWeights* experts = nullptr) const;
  UnitWeight make_weight(const ProgramWeight& weight, bool is_trained, int shard, bool any_dimension) const;
  void make_block(BlockKind& kind);
  void trace_block(BlockKind& kind, const TraceOptions& keep);
  void choose_layers(Blocks blocks);
  void make_units(Blocks blocks);
  std::vector<bool> trained(const ProgramSection& section) const;
  void load();
  int64_t saved_bytes(const Trace& trace) const;
  void forward();
  void backward();
  void forward_block(size_t i);
  void backward_block(size_t i);
  void optimizer_step();
  void update_with_adafactor();
  int64_t quantized_input_bytes() const;
  void end_in_flight();
  template <class RunBlock>
  void for_blocks_forward(RunBlock run_block);
  void release_retained();
  void offload_block(size_t i);
  void restore_block(size_t i);
  void play(const std::vector<Event>& events, Handle* slots, ShardedUnit& unit, const std::vector<int>& places,
            ShardedUnit* experts = nullptr);
  template <class Visit>
  void for_stored(Visit visit) const;
  // Bytes for `count` identical units.
  Handle book(int64_t bytes, MemoryClass memory_class, int64_t count) {
    Handle handle = ledger_.allocate(bytes, memory_class);
    if (count > 1) {
      ClassBytes more{};
      more[static_cast<size_t>(memory_class)] = rounded_size(bytes);
      ledger_.repeat(more, count - 1);
    }
    return handle;
  }
  ShardedUnit& block_unit(size_t i) { return units_[first_block_ + i]; }
  ShardedUnit* experts_unit(size_t i) { return expert_units_[i] < 0 ? nullptr : &units_[static_cast<size_t>(expert_units_[i])]; }
  const BlockKind& block_kind(size_t i) const { return m_.blocks[is_expert_layer(s_.model, layers_[i]) ? 1 : 0]; }
  const Trace& block_trace(size_t i) const { return is_recomputed(layers_[i]) ? block_kind(i).recomputed : block_kind(i).kept; }
  void gather_ahead(size_t i);

  const Setup& s_;
  PipelinePart stage_;
  LossHead loss_ = LossHead::kEager;
  Ledger ledger_;
  StateBytes state_;
  Model m_;
  std::vector<ShardedUnit> units_;
  std::vector<int64_t> layers_;    // that are walked
  std::vector<int64_t> left_out_;  // how many more layers each of them stands for
  std::vector<int> expert_units_;  // of each walked layer; -1: none
  size_t first_block_ = 0, embedding_unit_ = 0, head_unit_ = 0;
  std::unique_ptr<ShardingEngine> engine_;
  std::vector<Handle> block_slots_, embedding_slots_, head_slots_;
  std::vector<bool> offloaded_;  // by block and slot
  size_t slots_per_block_ = 0;
  std::vector<Handle> in_flight_;  // saved by micro-batches of a pipeline that started before
  Handle activation_, gradient_, tokens_, labels_;
  int64_t residual_bytes_ = 0;
  int64_t num_tokens_ = 0;      // of the micro-batch that runs, on this rank
  bool retains_ = false;        // inputs of recomputed blocks and their gradients, until backward is over
  bool gathers_ahead_ = false;  // by name: the next block, with its experts
  bool steady_ = false, backward_workspace_ = false, moments_made_ = false;
};

}  // namespace replay
}  // namespace distsetup
