// The walk: warm-up forwards, then one forward and one backward in turn, then the backwards that are left (stages.h says how many are
// in flight). A layer that is recomputed gives back after its forward what recomputation makes again, and makes it again before its
// backward.
// Leaves out: streams other than compute (Megatron's collectives run on tensors of the compute stream), and the order of layers of
// different chunks of an interleaved pipeline.
#include "planner/frameworks/stage_replay.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>

#include "planner/frameworks/libraries.h"
#include "planner/frameworks/memory.h"
#include "planner/replay/allocator.h"

namespace distsetup {
namespace {

using replay::Allocator;
using replay::Block;

// A part with its bytes evaluated and its tensors in the order ops need them.
struct WalkedPart {
  const LifetimePart* part = nullptr;
  std::vector<int64_t> bytes;
  std::vector<std::vector<int>> born, dies;

  WalkedPart() = default;
  WalkedPart(const LifetimePart* of, const LayerSymbols& symbols) : part(of) {
    if (part == nullptr) return;
    born.resize(static_cast<size_t>(part->num_ops));
    dies.resize(static_cast<size_t>(part->num_ops));
    for (size_t i = 0; i < part->tensors.size(); ++i) {
      const LifetimeTensor& tensor = part->tensors[i];
      bytes.push_back(tensor.bytes.evaluate(symbols.values));
      born[static_cast<size_t>(tensor.born)].push_back(static_cast<int>(i));
      dies[static_cast<size_t>(tensor.dies)].push_back(static_cast<int>(i));
    }
  }
};

using Blocks = std::vector<Block*>;

struct LiveLayer {
  Blocks attention, mlp;
  Blocks slots;  // of a traced block
};

class StageWalk {
 public:
  StageWalk(const Setup& setup, const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage,
            const StageBuffers& buffers)
      : attention_(parts.attention, symbols),
        dense_(parts.dense, symbols),
        experts_(parts.experts, symbols),
        head_(parts.head, symbols),
        traced_(parts.traced.get()),
        stage_(stage),
        buffers_(buffers),
        allocator_({buffers.capacity_bytes, setup.software.expandable_segments}) {
    for (const std::string& name : setup.recompute_modules) modules_ |= recompute_module(name);
    if (setup.recompute == ActivationRecompute::kAttentionOnly) modules_ |= recompute_module("core_attn");
    offloads_ = setup.offload.activations != OffloadPlace::kNone;
    virtual_stages_ = setup.virtual_stages;
    layers_of_unit_ = std::max<int64_t>(1, stage.num_layers / setup.virtual_stages);
    first_plain_layer_ = layers_of_unit_;
    if (setup.recompute == ActivationRecompute::kNone || setup.recompute == ActivationRecompute::kAttentionOnly)
      first_plain_layer_ = 0;
    if (setup.recompute == ActivationRecompute::kFull && setup.recompute_layers > 0) first_plain_layer_ = setup.recompute_layers;
    if (parts.traced && setup.recompute != ActivationRecompute::kNone) first_plain_layer_ = layers_of_unit_;
    if (setup.recompute == ActivationRecompute::kEveryK) first_plain_layer_ = layers_of_unit_ / std::max(1, setup.recompute_every_k);
    units_ = std::min(setup.gradient_accumulation * setup.virtual_stages, stage.in_flight + 2);
  }

  StageReplay run() {
    Blocks initial;
    for (const int64_t bytes : buffers_.initial) initial.push_back(allocate(bytes));
    for (size_t i = 0; i < buffers_.from_start.size(); ++i) {
      hold(buffers_.from_start[i]);
      if (i == 1) {
        for (Block*& block : initial) release(block);
      }
    }
    Blocks temporary;
    for (const int64_t bytes : buffers_.at_start) temporary.push_back(allocate(bytes));
    give_back(allocator_, temporary);
    for (int step = 0; step < 2 && !ran_out_; ++step) {
      const int64_t warm_up = std::min(units_, stage_.in_flight) - 1;
      int64_t forwards = 0, backwards = 0;
      for (; forwards < warm_up; ++forwards) forward();
      for (; forwards < units_; ++forwards, ++backwards) {
        forward();
        backward(step == 0 && backwards == 0);
      }
      for (; backwards < units_; ++backwards) backward(false);
      optimizer(step == 0);
    }
    return {allocator_.peak_allocated_bytes(), allocator_.peak_reserved_bytes(), ran_out_};
  }

 private:
  Block* allocate(int64_t bytes) {
    if (bytes <= 0 || ran_out_) return nullptr;
    Block* block = allocator_.allocate(bytes, replay::AllocatorStream::kCompute);
    ran_out_ = block == nullptr;
    return block;
  }
  void hold(int64_t bytes) { allocate(bytes); }
  void pass(int64_t bytes) {
    Block* block = allocate(bytes);
    release(block);
  }
  void release(Block*& block) {
    if (block != nullptr) allocator_.free(block);
    block = nullptr;
  }

  void walk(const WalkedPart& walked, int first_op, int end_op, Blocks& blocks) {
    for (int op = first_op; op < end_op && !ran_out_; ++op) {
      for (const int i : walked.born[static_cast<size_t>(op)]) {
        if (blocks[static_cast<size_t>(i)] == nullptr) blocks[static_cast<size_t>(i)] = allocate(walked.bytes[static_cast<size_t>(i)]);
      }
      for (const int i : walked.dies[static_cast<size_t>(op)]) {
        release(blocks[static_cast<size_t>(i)]);
      }
    }
  }

  void part_forward(const WalkedPart& walked, Blocks& blocks) {
    blocks.resize(walked.bytes.size());
    walk(walked, 0, walked.part->num_forward, blocks);
  }
  void drop(const WalkedPart& walked, ModuleSet modules, Blocks& blocks) {
    if (modules == 0) return;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if ((walked.part->tensors[i].dropped_by & modules) != 0) release(blocks[i]);
    }
  }
  void part_backward(const WalkedPart& walked, bool again, Blocks& blocks) {
    if (again) walk(walked, 0, walked.part->num_forward, blocks);
    walk(walked, walked.part->num_forward, walked.part->num_ops, blocks);
    give_back(allocator_, blocks);
  }

  static void give_back(Allocator& allocator, Blocks& blocks) {
    for (Block*& block : blocks) {
      if (block != nullptr) allocator.free(block);
      block = nullptr;
    }
  }
  void give_back(LiveLayer& layer) {  // to the host
    give_back(allocator_, layer.attention);
    give_back(allocator_, layer.mlp);
  }

  const WalkedPart& mlp_of(int64_t layer) const {
    return layer >= layers_of_unit_ - stage_.num_expert_layers && stage_.num_expert_layers > 0 ? experts_ : dense_;
  }

  // A traced program's events. Gradients of weights live until their layer is done, when a bucket takes them (stages 2 and 3).
  void play(const std::vector<replay::Event>& events, Blocks& slots, const TracedBlock* block = nullptr) {
    for (const replay::Event& event : events) {
      if (ran_out_) return;
      if (event.kind == replay::Event::Kind::kAllocate) slots[static_cast<size_t>(event.slot)] = allocate(event.bytes);
      if (event.kind == replay::Event::Kind::kFree) release(slots[static_cast<size_t>(event.slot)]);
      if (event.kind == replay::Event::Kind::kWeightGradient && buffers_.reduces_at_once && block != nullptr) {
        weight_gradients_.push_back(allocate(2 * block->gradients[static_cast<size_t>(event.slot)]));
      }
    }
  }
  const TracedBlock& block_of(int64_t layer) const {
    return traced_->blocks[layer >= layers_of_unit_ - stage_.num_expert_layers && stage_.num_expert_layers > 0 ? 1 : 0];
  }
  const replay::Trace& trace_of(int64_t layer) const {
    return layer < first_plain_layer_ ? block_of(layer).again : block_of(layer).kept;
  }

  void traced_forward() {
    std::vector<LiveLayer> unit(static_cast<size_t>(layers_of_unit_));
    Block* x = allocate(traced_->input_bytes);
    for (int64_t i = 0; i < layers_of_unit_; ++i) {
      const replay::Trace& trace = trace_of(i);
      Blocks& slots = unit[static_cast<size_t>(i)].slots;
      slots.resize(static_cast<size_t>(std::max<int16_t>(trace.num_slots, 2)));
      slots[replay::Trace::kInput] = x;
      play(trace.forward, slots, &block_of(i));
      x = slots[static_cast<size_t>(trace.output)];
      slots[static_cast<size_t>(trace.output)] = nullptr;
      if (trace.input_freed_forward) release(slots[replay::Trace::kInput]);
      if (offloads_ && i >= 2) release(unit[static_cast<size_t>(i - 2)].slots[replay::Trace::kInput]);
    }
    live_.push_back(std::move(unit));
    if (stage_.has_head) {
      outputs_.push_back(x);
    } else {
      release(x);  // sent on
    }
  }

  void traced_backward(std::vector<LiveLayer>& unit, bool very_first) {
    Block* gradient = nullptr;
    if (stage_.has_head) {
      head_blocks_.assign(static_cast<size_t>(std::max<int16_t>(traced_->head.num_slots, 2)), nullptr);
      head_blocks_[replay::Trace::kInput] = outputs_.front();
      outputs_.pop_front();
      play(traced_->head.forward, head_blocks_);
      play(traced_->head.backward, head_blocks_);
      const int16_t slot = traced_->head.input_gradient;
      if (slot >= 0) std::swap(gradient, head_blocks_[static_cast<size_t>(slot)]);
    }
    if (gradient == nullptr) gradient = allocate(traced_->input_bytes);
    pass(buffers_.leaving_head);
    if (very_first) {
      for (const int64_t bytes : buffers_.from_backward) hold(bytes);
    }
    for (int64_t i = layers_of_unit_; i-- > 0;) {
      const replay::Trace& trace = trace_of(i);
      Blocks& slots = unit[static_cast<size_t>(i)].slots;
      if (offloads_ && slots[replay::Trace::kInput] == nullptr) slots[replay::Trace::kInput] = allocate(traced_->input_bytes);
      slots[replay::Trace::kGradient] = gradient;
      play(trace.backward, slots, &block_of(i));
      gradient = nullptr;
      if (trace.input_gradient >= 0) std::swap(gradient, slots[static_cast<size_t>(trace.input_gradient)]);
      give_back(allocator_, slots);
      pass(buffers_.leaving_layer);
      give_back(allocator_, weight_gradients_);
      weight_gradients_.clear();
    }
    release(gradient);
    give_back(allocator_, head_blocks_);
  }

  void forward() {
    if (traced_ != nullptr) return traced_forward();
    std::vector<LiveLayer> unit(static_cast<size_t>(layers_of_unit_));
    for (int64_t i = 0; i < layers_of_unit_; ++i) {
      LiveLayer& layer = unit[static_cast<size_t>(i)];
      const bool whole = i < first_plain_layer_;
      part_forward(attention_, layer.attention);
      if (!whole) drop(attention_, modules_, layer.attention);
      part_forward(mlp_of(i), layer.mlp);
      if (whole) drop(attention_, kWholeLayer, layer.attention);
      drop(mlp_of(i), whole ? kWholeLayer : modules_, layer.mlp);
      if (offloads_ && i >= 2) give_back(unit[static_cast<size_t>(i - 2)]);
    }
    live_.push_back(std::move(unit));
  }

  void backward(bool very_first) {
    std::vector<LiveLayer> unit = std::move(live_.front());
    live_.pop_front();
    Blocks temporary;
    for (const int64_t bytes : buffers_.in_backward) temporary.push_back(allocate(bytes));
    if (traced_ != nullptr) {
      traced_backward(unit, very_first);
      give_back(allocator_, temporary);
      return;
    }
    if (stage_.has_head && backwards_done_++ % virtual_stages_ == 0) {  // of an interleaved stage, one chunk has the head
      head_blocks_.clear();
      part_forward(head_, head_blocks_);
      part_backward(head_, false, head_blocks_);
      pass(buffers_.leaving_head);
    }
    if (very_first) {
      for (const int64_t bytes : buffers_.from_backward) hold(bytes);
    }
    for (int64_t i = layers_of_unit_; i-- > 0;) {
      LiveLayer& layer = unit[static_cast<size_t>(i)];
      const bool whole = i < first_plain_layer_;
      if (whole || offloads_) walk(attention_, 0, attention_.part->num_forward, layer.attention);
      part_backward(mlp_of(i), whole || offloads_ || modules_ != 0, layer.mlp);
      part_backward(attention_, !whole && !offloads_ && modules_ != 0, layer.attention);
      pass(buffers_.leaving_layer);
    }
    give_back(allocator_, temporary);
  }

  void optimizer(bool very_first) {
    Block* norm = allocate(buffers_.norm);
    release(norm);
    Block* flat = allocate(buffers_.flat_gradient);
    Blocks temporary;
    for (const int64_t bytes : buffers_.in_optimizer) {
      temporary.push_back(allocate(bytes));
      release(flat);
    }
    if (very_first) {
      for (const int64_t bytes : buffers_.from_optimizer) hold(bytes);
    }
    for (Block*& block : temporary) release(block);
  }

  WalkedPart attention_, dense_, experts_, head_;
  const TracedLayers* traced_ = nullptr;
  const StageLayers& stage_;
  const StageBuffers& buffers_;
  Allocator allocator_;
  ModuleSet modules_ = 0;
  int64_t layers_of_unit_ = 0, first_plain_layer_ = 0, units_ = 0;
  int64_t virtual_stages_ = 1, backwards_done_ = 0;
  std::deque<std::vector<LiveLayer>> live_;
  std::deque<Block*> outputs_;  // of traced units: what the head reads
  Blocks head_blocks_, weight_gradients_;
  bool offloads_ = false, ran_out_ = false;
};

}  // namespace

StageReplay replay_stage(const Setup& setup, const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage,
                         const StageBuffers& buffers) {
  return StageWalk(setup, parts, symbols, stage, buffers).run();
}

void replay_into(MemoryEstimate& out, const Setup& setup, const StageParts& parts, const LayerSymbols& symbols,
                 const StageLayers& stage, StageBuffers buffers) {
  constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  const int64_t usable = setup.gpu.usable_memory_bytes;
  buffers.capacity_bytes = usable > 0 ? usable - setup.gpu.context_bytes - communicator_bytes(setup) : kUnlimited;
  StageReplay replayed = replay_stage(setup, parts, symbols, stage, buffers);
  // What the closed form counts and the walk leaves out takes its place beside the walk's blocks.
  const int64_t beside = std::max<int64_t>(0, out.allocated_bytes - replayed.allocated_bytes);
  if (!replayed.ran_out && beside > 0 && replayed.reserved_bytes > buffers.capacity_bytes - beside) {
    buffers.capacity_bytes -= beside;
    replayed = replay_stage(setup, parts, symbols, stage, buffers);
  }
  out.ran_out = replayed.ran_out;
  if (replayed.ran_out) {  // what it would have taken
    buffers.capacity_bytes = kUnlimited;
    replayed = replay_stage(setup, parts, symbols, stage, buffers);
  }
  // What segments add to the live bytes; the walk counts small transients that the closed form leaves out, and the other way round.
  out.reserved_bytes = replayed.reserved_bytes + std::max<int64_t>(0, out.allocated_bytes - replayed.allocated_bytes);
  out.device_bytes = out.reserved_bytes + setup.gpu.context_bytes + communicator_bytes(setup);
}

}  // namespace distsetup
