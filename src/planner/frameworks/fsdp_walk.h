// One step as events of the engine and of the traces in between, booked in a ledger.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "planner/frameworks/fsdp_engine.h"
#include "planner/frameworks/fsdp_model.h"
#include "planner/replay/allocator.h"
#include "planner/replay/ledger.h"

namespace distsetup::replay {

class FsdpWalk {
 public:
  FsdpWalk(const Setup& setup, Allocator* allocator, Blocks blocks, PipelinePart part);

  void run(int steps);
  // Micro-batches of different lengths (Setup::sample_lengths), in the `order`-th order.
  void run_lengths(int order);
  // After run: the forward of evaluation, which saves nothing, and what a checkpoint is written from.
  void evaluate_and_save();
  const Ledger& ledger() const { return ledger_; }
  const FsdpModel& model() const { return m_; }
  // simulate only: the state a step starts from has the moments already.
  void start_steady() { steady_ = true; }

 private:
  void load();
  void forward();
  void backward();
  void forward_block(size_t i);
  void backward_block(size_t i);
  void optimizer_step();
  void update_with_adafactor();
  void end_in_flight();
  template <class RunBlock>
  void for_blocks_forward(RunBlock run_block);
  void release_retained();
  void offload_block(size_t i);
  void restore_block(size_t i);
  void play(const std::vector<Event>& events, Handle* slots, ShardedUnit& unit, const std::vector<int>& places,
            ShardedUnit* experts = nullptr);
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
  void gather_ahead(size_t i);

  const Setup& s_;
  Ledger ledger_;
  FsdpModel m_;
  std::unique_ptr<ShardingEngine> engine_;
  std::vector<Handle> block_slots_, embedding_slots_, head_slots_;
  std::vector<bool> offloaded_;  // by block and slot
  size_t slots_per_block_ = 0;
  std::vector<Handle> part_inputs_;  // by block: what its recomputed parts read, but for the first
  std::vector<Handle> in_flight_;    // saved by micro-batches of a pipeline that started before
  Handle activation_, gradient_, tokens_, labels_;
  bool steady_ = false, backward_workspace_ = false, moments_made_ = false;
};

}  // namespace distsetup::replay
