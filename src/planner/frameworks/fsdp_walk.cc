// Forward and backward of a micro-batch, forward of evaluation: the engine's events around each unit, the traces' events inside.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/count.h"
#include "planner/frameworks/fsdp_walk.h"
#include "planner/frameworks/libraries.h"

namespace distsetup::replay {

void FsdpWalk::play(const std::vector<Event>& events, Handle* slots, ShardedUnit& unit, const std::vector<int>& places,
                    ShardedUnit* experts) {
  for (const Event& event : events) {
    switch (event.kind) {
      case Event::Kind::kAllocate: slots[event.slot] = ledger_.allocate(event.bytes, event.memory_class); break;
      case Event::Kind::kFree: ledger_.free(slots[event.slot]); break;
      case Event::Kind::kWeightGradient: {
        const int place = places[static_cast<size_t>(event.slot)];
        if (place >= 0) {
          engine_->weight_gradient(unit, place);
        } else if (place <= kExpertPlace) {
          engine_->weight_gradient(*experts, kExpertPlace - place);
        } else {
          engine_->weight_gradient(units_[embedding_unit_], 0);  // a tied head: the embedding's
        }
        break;
      }
      case Event::Kind::kExperts:
        if (experts != nullptr) engine_->after_backward(*experts);
        break;
      case Event::Kind::kGathered:
        if (m_.head_apart) {
          engine_->before_backward(units_[head_unit_]);
        } else {
          engine_->prefetch(block_unit(layers_.size() - 1));
        }
        break;
    }
  }
}

void FsdpWalk::forward_block(size_t i) {
  ShardedUnit& unit = block_unit(i);
  const Trace& trace = block_trace(i);
  Handle* slots = &block_slots_[i * slots_per_block_];
  ShardedUnit* experts = experts_unit(i);
  engine_->before_forward(unit);
  if (experts != nullptr) engine_->before_forward(*experts);
  if (gathers_ahead_ && i + 1 < layers_.size()) gather_ahead(i + 1);
  slots[Trace::kInput] = activation_;
  play(trace.forward, slots, unit, block_kind(i).places, experts);
  if (experts != nullptr) engine_->after_forward(*experts);
  engine_->after_forward(unit);
  if (trace.input_freed_forward) ledger_.free(slots[Trace::kInput]);
  activation_ = slots[trace.output];
  if (offloads_activations()) offload_block(i);
}

// With expert parallelism torchtitan names what is gathered next, in both directions (torchtitan/models/llama4/infra/parallelize.py,
// set_modules_to_forward_prefetch): the counts of rows that the CPU waits for would hold up FSDP's own order.
void FsdpWalk::gather_ahead(size_t i) {
  engine_->prefetch(block_unit(i));
  if (experts_unit(i) != nullptr) engine_->prefetch(*experts_unit(i));
}

// What the block before this one saved goes to the host while this one runs: two blocks' worth stays on the device.
void FsdpWalk::offload_block(size_t i) {
  if (i == 0) return;
  Handle* slots = &block_slots_[(i - 1) * slots_per_block_];
  const int16_t output = block_trace(i - 1).output;
  for (int16_t slot = 0; slot < static_cast<int16_t>(slots_per_block_); ++slot) {
    if (slot == output || slot == Trace::kGradient || !slots[slot]) continue;
    offloaded_[(i - 1) * slots_per_block_ + static_cast<size_t>(slot)] = true;
    ledger_.free(slots[slot]);
  }
}

void FsdpWalk::restore_block(size_t i) {
  const Trace& trace = block_trace(i);
  for (size_t slot = 0; slot < slots_per_block_; ++slot) {
    const size_t index = i * slots_per_block_ + slot;
    if (!offloaded_[index]) continue;
    offloaded_[index] = false;
    block_slots_[index] = ledger_.allocate(trace.bytes_of_slot(static_cast<int16_t>(slot), residual_bytes_), MemoryClass::kActivation);
  }
}

void FsdpWalk::backward_block(size_t i) {
  ShardedUnit& unit = block_unit(i);
  const Trace& trace = block_trace(i);
  Handle* slots = &block_slots_[i * slots_per_block_];
  if (offloads_activations()) restore_block(i);
  ShardedUnit* experts = experts_unit(i);
  engine_->before_backward(unit);
  if (experts != nullptr) engine_->before_backward(*experts);
  if (gathers_ahead_ && i > 0) gather_ahead(i - 1);
  slots[Trace::kGradient] = gradient_;
  play(trace.backward, slots, unit, block_kind(i).places, experts);
  gradient_ = std::exchange(slots[trace.input_gradient], {});
  if (!retains_) slots[Trace::kGradient] = {};
  if (retains_ && i + 1 == layers_.size()) ledger_.free(slots[Trace::kGradient]);  // the head's: no block's input gradient
  engine_->after_backward(unit);
}

// FSDP1 reshards a unit without trained parameters through a hook on its inputs, and the hook's handle keeps the input of the
// recomputed block and its gradient until backward is over (torch/distributed/fsdp/_runtime_utils.py,
// _register_post_backward_reshard_only_hook).
void FsdpWalk::release_retained() {
  for (size_t i = 0; retains_ && i < layers_.size(); ++i) {
    Handle* slots = &block_slots_[i * slots_per_block_];
    ledger_.free(slots[Trace::kInput]);
    ledger_.free(slots[Trace::kGradient]);
    if (left_out_[i] == 0) continue;
    ClassBytes less{};
    less[static_cast<size_t>(MemoryClass::kActivation)] = -2 * rounded_size(residual_bytes_);
    ledger_.repeat(less, left_out_[i]);
  }
}

// In order; of those left out, one like them stands for all.
template <class RunBlock>
void FsdpWalk::for_blocks_forward(RunBlock run_block) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool stands_for_more = left_out_[i] > 0;
    const ClassBytes before = ledger_.live();
    ledger_.start_segment();
    run_block(i);
    if (!stands_for_more) continue;
    ClassBytes change = ledger_.live();
    for (size_t c = 0; c < kNumClasses; ++c) change[c] -= before[c];
    ledger_.note_repeated_peak(ledger_.segment_live(), change, left_out_[i]);
    ledger_.repeat(change, left_out_[i]);
  }
}

void FsdpWalk::forward() {
  ledger_.enter(MemoryPhase::kForward);
  tokens_ = ledger_.allocate(8 * num_tokens_, MemoryClass::kWorkspace);
  labels_ = ledger_.allocate(8 * num_tokens_, MemoryClass::kWorkspace);
  ShardedUnit& first = units_[embedding_unit_];
  engine_->before_forward(first);
  if (has_embedding()) {
    play(m_.embedding.forward, embedding_slots_.data(), first, m_.embedding_places);
    activation_ = embedding_slots_[static_cast<size_t>(m_.embedding.output)];
  } else {
    activation_ = ledger_.allocate(residual_bytes_, MemoryClass::kActivation);  // received
  }
  if (m_.embedding_apart) engine_->after_forward(first);
  for_blocks_forward([this](size_t i) { forward_block(i); });
  ledger_.enter(MemoryPhase::kLoss);
  ShardedUnit& last = units_[head_unit_];
  if (m_.head_apart) engine_->before_forward(last);
  head_slots_[Trace::kInput] = activation_;
  if (has_head()) {
    play(m_.head.forward, head_slots_.data(), last, m_.head_places);
  } else {
    ledger_.free(head_slots_[Trace::kInput]);  // sent
  }
  if (m_.head_apart) engine_->after_forward(last);
  if (!m_.embedding_apart) engine_->after_forward(first);
  engine_->end_forward();
}

void FsdpWalk::backward() {
  ledger_.enter(MemoryPhase::kLoss);
  if (!backward_workspace_) ledger_.allocate(cublas_workspace_bytes(s_.gpu), MemoryClass::kWorkspace);
  backward_workspace_ = true;
  ShardedUnit& last = units_[head_unit_];
  if (has_head()) {
    play(m_.head.backward, head_slots_.data(), last, m_.head_places);
    gradient_ = head_slots_[static_cast<size_t>(m_.head.input_gradient)];
  } else {
    gradient_ = ledger_.allocate(residual_bytes_, MemoryClass::kActivation);  // received
  }
  if (m_.head_apart) engine_->after_backward(last);
  ledger_.enter(MemoryPhase::kBackward);
  for (size_t i = layers_.size(); i-- > 0;) {
    const bool stands_for_more = left_out_[i] > 0;
    const ClassBytes before = ledger_.live();
    ledger_.start_segment();
    backward_block(i);
    if (!stands_for_more) continue;
    ClassBytes change = ledger_.live();
    for (size_t c = 0; c < kNumClasses; ++c) change[c] -= before[c];
    ledger_.note_repeated_peak(ledger_.segment_live(), change, left_out_[i]);
    ledger_.repeat(change, left_out_[i]);
  }
  if (has_embedding()) {
    embedding_slots_[Trace::kGradient] = gradient_;
    play(m_.embedding.backward, embedding_slots_.data(), units_[embedding_unit_], m_.embedding_places);
  } else {
    ledger_.free(gradient_);
  }
  for (const int16_t slot : m_.head.held) ledger_.free(head_slots_[static_cast<size_t>(slot)]);
  for (const int16_t slot : m_.embedding.held) ledger_.free(embedding_slots_[static_cast<size_t>(slot)]);
  release_retained();
  engine_->end_backward();
  ledger_.free(tokens_);
  ledger_.free(labels_);
}

void FsdpWalk::end_in_flight() {
  if (ledger_.counts_only()) {
    if (!in_flight_.empty()) ledger_.forget(MemoryClass::kActivation);
  } else {
    for (Handle& handle : in_flight_) ledger_.free(handle);
  }
  in_flight_.clear();
}

// Evaluation runs the same micro-batch under no_grad: units are gathered as in forward, temporaries and logits come and go. A save
// holds the states alone: with sharded state dicts, each rank copies its shards to the host and writes them
// (torch/distributed/checkpoint), and unsharded training writes what it has. Leaves out: full state dicts, which gather unit by unit.
void FsdpWalk::evaluate_and_save() {
  end_in_flight();
  const ProgramSection& head = m_.program->heads[static_cast<size_t>(loss_)];
  const TraceOptions options{TraceMode::kNoGradient, false, residual_bytes_};
  const auto traced = [&](const ProgramSection& section, uint64_t facts) {
    return trace_section(section, facts, m_.symbols, std::vector<bool>(section.weights.size(), false), options);
  };
  const auto played = [this](const Trace& trace, std::vector<Handle>& slots, ShardedUnit& unit, const std::vector<int>& places) {
    slots.assign(static_cast<size_t>(trace.num_slots), {});
    slots[Trace::kInput] = activation_;
    play(trace.forward, slots.data(), unit, places);
    if (trace.input_freed_forward) ledger_.free(slots[Trace::kInput]);
    activation_ = trace.output >= 0 ? slots[static_cast<size_t>(trace.output)] : Handle{};
  };
  ledger_.enter(MemoryPhase::kEvaluate);
  tokens_ = ledger_.allocate(8 * num_tokens_, MemoryClass::kWorkspace);
  labels_ = ledger_.allocate(8 * num_tokens_, MemoryClass::kWorkspace);
  ShardedUnit& first = units_[embedding_unit_];
  ShardedUnit& last = units_[head_unit_];
  std::vector<Handle> slots, embedding_slots;
  engine_->before_forward(first);
  const Trace embedding = traced(m_.program->embedding, m_.facts);
  Trace blocks[2];
  for (size_t kind = 0; kind < 2; ++kind)
    if (m_.blocks[kind].present) blocks[kind] = traced(m_.program->block, m_.blocks[kind].facts);
  activation_ = {};
  if (has_embedding()) {
    played(embedding, embedding_slots, first, m_.embedding_places);
  } else {
    activation_ = ledger_.allocate(residual_bytes_, MemoryClass::kActivation);  // received
  }
  if (m_.embedding_apart) engine_->after_forward(first);
  for_blocks_forward([&](size_t i) {
    ShardedUnit* experts = experts_unit(i);
    engine_->before_forward(block_unit(i));
    if (experts != nullptr) engine_->before_forward(*experts);
    if (gathers_ahead_ && i + 1 < layers_.size()) gather_ahead(i + 1);
    played(blocks[is_expert_layer(s_.model, layers_[i]) ? 1 : 0], slots, block_unit(i), block_kind(i).places);
    if (experts != nullptr) engine_->after_forward(*experts);
    engine_->after_forward(block_unit(i));
  });
  if (m_.head_apart) engine_->before_forward(last);
  if (has_head()) {
    const Trace loss = traced(head, m_.facts);
    played(loss, slots, last, m_.head_places);
    for (const int16_t slot : loss.held) ledger_.free(slots[static_cast<size_t>(slot)]);
  } else {
    ledger_.free(activation_);  // sent
  }
  for (const int16_t slot : embedding.held)
    if (has_embedding()) ledger_.free(embedding_slots[static_cast<size_t>(slot)]);
  if (m_.head_apart) engine_->after_forward(last);
  if (!m_.embedding_apart) engine_->after_forward(first);
  engine_->end_forward();
  engine_->end_backward();  // what stays gathered between two forwards
  if (ledger_.counts_only()) ledger_.forget(MemoryClass::kGathered);
  ledger_.free(tokens_);
  ledger_.free(labels_);
  ledger_.enter(MemoryPhase::kSave);
}

}  // namespace distsetup::replay
