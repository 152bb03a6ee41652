// Forward and backward of a micro-batch, forward of evaluation: the engine's events around each unit, the traces' events inside.
#include "planner/frameworks/fsdp_walk.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/count.h"
#include "planner/frameworks/fsdp_lengths.h"
#include "planner/frameworks/fsdp_states.h"
#include "planner/frameworks/libraries.h"
#include "planner/frameworks/state_bytes.h"

namespace distsetup::replay {

FsdpWalk::FsdpWalk(const Setup& setup, Allocator* allocator, Blocks blocks, PipelinePart part)
    : s_(setup), ledger_(allocator), m_(setup, blocks, part) {
  engine_ = make_engine(s_, m_.unsharded(), m_.symbols[static_cast<size_t>(Symbol::kComputeBytes)], ledger_, m_.units);
  slots_per_block_ = static_cast<size_t>(std::max({m_.blocks[0].kept.num_slots, m_.blocks[0].recomputed.num_slots,
                                                   m_.blocks[1].kept.num_slots, m_.blocks[1].recomputed.num_slots}));
  block_slots_.resize(slots_per_block_ * m_.layers.size());
  if (m_.offloads_activations()) offloaded_.resize(block_slots_.size());
  part_inputs_.resize(m_.layers.size());
  embedding_slots_.resize(static_cast<size_t>(m_.embedding_trace.num_slots));
  head_slots_.resize(static_cast<size_t>(m_.head_trace.num_slots));
}

void FsdpWalk::run(int steps) {
  load();
  for (int step = 0; step < steps; ++step) {
    const int micro_batches = s_.gradient_accumulation > 1 ? 2 : 1;
    for (int i = 0; i < micro_batches && !ledger_.ran_out(); ++i) {
      engine_->set_reduces(!s_.accumulates_whole() || i + 1 == micro_batches);
      forward();
      backward();
    }
    optimizer_step();
    engine_->zero_gradients();
    if (ledger_.counts_only()) ledger_.forget(MemoryClass::kGradient);
  }
}

void FsdpWalk::run_lengths(int order) {
  load();
  constexpr int kMicroBatches = 64;  // what is reserved hardly grows after that
  LengthDraw draw(s_, order);
  const int64_t accumulated = std::clamp<int64_t>(s_.gradient_accumulation, 1, kMicroBatches / 2);
  for (int64_t i = 0; i < kMicroBatches && !ledger_.ran_out(); ++i) {
    m_.set_sequence(s_.micro_batch, draw.longest_of_micro_batch());
    engine_->set_reduces(!s_.accumulates_whole() || i % accumulated == accumulated - 1);
    forward();
    backward();
    if (i % accumulated != accumulated - 1) continue;
    optimizer_step();
    engine_->zero_gradients();
  }
}

void FsdpWalk::load() {
  ledger_.enter(MemoryPhase::kLoad);
  const bool on_device = s_.offload.parameters == OffloadPlace::kNone;
  for_stored(m_, [&](int64_t elements, double bytes, bool is_trained, int64_t count, bool) {
    if (on_device) book(as_bytes(bytes, elements), MemoryClass::kParameter, count);
    if (on_device && holds_reference(s_)) book(as_bytes(std::min(2.0, bytes), elements), MemoryClass::kParameter, count);
    if (m_.has_buckets() && is_trained) book(as_bytes(bytes_of(s_.gradient_dtype), elements), MemoryClass::kCommunication, count);
  });
  for (const ShardedUnit& unit : m_.units) {
    for (const UnitWeight& weight : unit.kind->weights) {
      if (weight.scale_bytes > 0) book(as_bytes(weight.scale_bytes, weight.elements), MemoryClass::kParameter, unit.count);
    }
  }
  constexpr int64_t kRopePositions = 8192;
  if (s_.model.learned_positions == 0) {
    ledger_.allocate(8 * kRopePositions * s_.model.head_size / 2, MemoryClass::kWorkspace);  // cosines and sines
  }
  ledger_.allocate(cublas_workspace_bytes(s_.gpu), MemoryClass::kWorkspace);
  for (size_t i = 0; i < m_.layers.size(); ++i) {
    for (const int64_t bytes : saved_by_others(m_, m_.block_trace(i)))
      in_flight_.push_back(book(bytes, MemoryClass::kActivation, m_.block_unit(i).count));
    if (s_.software.graph_outlives_backward)
      in_flight_.push_back(book(quantized_input_bytes(m_), MemoryClass::kActivation, m_.block_unit(i).count));
  }
  const int64_t received = num_received(m_), at_once = ledger_.counts_only() ? received : 1;
  for (int64_t i = 0; i < received; i += at_once) book(m_.residual_bytes, MemoryClass::kCommunication, at_once);
  if (!steady_) return;
  ledger_.allocate(cublas_workspace_bytes(s_.gpu), MemoryClass::kWorkspace);
  backward_workspace_ = true;
  optimizer_step();
}

void FsdpWalk::optimizer_step() {
  ledger_.enter(MemoryPhase::kOptimizer);
  if (s_.offload.optimizer != OffloadPlace::kNone || s_.offload.parameters != OffloadPlace::kNone) return;  // on the CPU
  if (!moments_made_) {
    moments_made_ = true;
    for_stored(m_, [&](int64_t elements, double, bool is_trained, int64_t count, bool in_block_matrix) {
      if (!is_trained) return;
      for_optimizer_buffers(s_, m_.state, elements, in_block_matrix,
                            [&](int64_t bytes) { book(bytes, MemoryClass::kOptimizer, count); });
    });
  }
  if (s_.optimizer == OptimizerKind::kAdafactor) return update_with_adafactor();
  if (s_.optimizer_implementation != OptimizerImplementation::kForeach) return;
  std::vector<std::pair<Handle, int64_t>> temporaries;
  for_stored(m_, [&](int64_t elements, double, bool is_trained, int64_t count, bool) {
    if (!is_trained) return;
    const int64_t bytes = as_bytes(bytes_of(s_.state_dtype), elements);
    temporaries.emplace_back(book(bytes, MemoryClass::kOptimizer, count), count > 1 ? (count - 1) * rounded_size(bytes) : 0);
  });
  for (std::pair<Handle, int64_t>& temporary : temporaries) {
    ledger_.free(temporary.first);
    if (temporary.second == 0) continue;
    ClassBytes less{};
    less[static_cast<size_t>(MemoryClass::kOptimizer)] = -temporary.second;
    ledger_.repeat(less, 1);
  }
}

// transformers/optimization.py, Adafactor.step: parameter by parameter, an fp32 update and one more of it while it is scaled.
void FsdpWalk::update_with_adafactor() {
  int64_t largest = 0;
  for_stored(m_, [&](int64_t elements, double, bool is_trained, int64_t, bool) {
    largest = is_trained ? std::max(largest, elements) : largest;
  });
  Handle update = ledger_.allocate(4 * largest, MemoryClass::kWorkspace),
         scaled = ledger_.allocate(4 * largest, MemoryClass::kWorkspace);
  ledger_.free(scaled);
  ledger_.free(update);
}

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
          engine_->weight_gradient(m_.units[m_.embedding_unit], 0);  // a tied head: the embedding's
        }
        break;
      }
      case Event::Kind::kExperts:
        if (experts != nullptr) engine_->after_backward(*experts);
        break;
      case Event::Kind::kGathered:
        if (m_.head_apart) {
          engine_->before_backward(m_.units[m_.head_unit]);
        } else {
          engine_->prefetch(m_.block_unit(m_.layers.size() - 1));
        }
        break;
    }
  }
}

void FsdpWalk::forward_block(size_t i) {
  ShardedUnit& unit = m_.block_unit(i);
  const Trace& trace = m_.block_trace(i);
  Handle* slots = &block_slots_[i * slots_per_block_];
  ShardedUnit* experts = m_.experts_unit(i);
  engine_->before_forward(unit);
  if (experts != nullptr) engine_->before_forward(*experts);
  if (m_.parts_bytes(i) > 0) part_inputs_[i] = ledger_.allocate(m_.parts_bytes(i), MemoryClass::kActivation);
  if (m_.gathers_ahead && i + 1 < m_.layers.size()) gather_ahead(i + 1);
  slots[Trace::kInput] = activation_;
  play(trace.forward, slots, unit, m_.block_kind(i).places, experts);
  if (experts != nullptr) engine_->after_forward(*experts);
  engine_->after_forward(unit);
  if (trace.input_freed_forward) ledger_.free(slots[Trace::kInput]);
  activation_ = slots[trace.output];
  if (m_.offloads_activations()) offload_block(i);
}

// With expert parallelism torchtitan names what is gathered next, in both directions (torchtitan/models/llama4/infra/parallelize.py,
// set_modules_to_forward_prefetch): the counts of rows that the CPU waits for would hold up FSDP's own order.
void FsdpWalk::gather_ahead(size_t i) {
  engine_->prefetch(m_.block_unit(i));
  if (m_.experts_unit(i) != nullptr) engine_->prefetch(*m_.experts_unit(i));
}

// What the block before this one saved goes to the host while this one runs: two blocks' worth stays on the device.
void FsdpWalk::offload_block(size_t i) {
  if (i == 0) return;
  Handle* slots = &block_slots_[(i - 1) * slots_per_block_];
  const int16_t output = m_.block_trace(i - 1).output;
  for (int16_t slot = 0; slot < static_cast<int16_t>(slots_per_block_); ++slot) {
    if (slot == output || slot == Trace::kGradient || !slots[slot]) continue;
    offloaded_[(i - 1) * slots_per_block_ + static_cast<size_t>(slot)] = true;
    ledger_.free(slots[slot]);
  }
}

void FsdpWalk::restore_block(size_t i) {
  const Trace& trace = m_.block_trace(i);
  for (size_t slot = 0; slot < slots_per_block_; ++slot) {
    const size_t index = i * slots_per_block_ + slot;
    if (!offloaded_[index]) continue;
    offloaded_[index] = false;
    block_slots_[index] =
        ledger_.allocate(trace.bytes_of_slot(static_cast<int16_t>(slot), m_.residual_bytes), MemoryClass::kActivation);
  }
}

void FsdpWalk::backward_block(size_t i) {
  ShardedUnit& unit = m_.block_unit(i);
  const Trace& trace = m_.block_trace(i);
  Handle* slots = &block_slots_[i * slots_per_block_];
  if (m_.offloads_activations()) restore_block(i);
  ShardedUnit* experts = m_.experts_unit(i);
  engine_->before_backward(unit);
  if (experts != nullptr) engine_->before_backward(*experts);
  if (m_.gathers_ahead && i > 0) gather_ahead(i - 1);
  slots[Trace::kGradient] = gradient_;
  play(trace.backward, slots, unit, m_.block_kind(i).places, experts);
  gradient_ = std::exchange(slots[trace.input_gradient], {});
  ledger_.free(part_inputs_[i]);
  if (!m_.retains) slots[Trace::kGradient] = {};
  if (m_.retains && i + 1 == m_.layers.size()) ledger_.free(slots[Trace::kGradient]);  // the head's: no block's input gradient
  engine_->after_backward(unit);
}

// FSDP1 reshards a unit without trained parameters through a hook on its inputs, and the hook's handle keeps the input of the
// recomputed block and its gradient until backward is over (torch/distributed/fsdp/_runtime_utils.py,
// _register_post_backward_reshard_only_hook).
void FsdpWalk::release_retained() {
  for (size_t i = 0; m_.retains && i < m_.layers.size(); ++i) {
    Handle* slots = &block_slots_[i * slots_per_block_];
    ledger_.free(slots[Trace::kInput]);
    ledger_.free(slots[Trace::kGradient]);
    if (m_.left_out[i] == 0) continue;
    ClassBytes less{};
    less[static_cast<size_t>(MemoryClass::kActivation)] = -2 * rounded_size(m_.residual_bytes);
    ledger_.repeat(less, m_.left_out[i]);
  }
}

// In order; of those left out, one like them stands for all.
template <class RunBlock>
void FsdpWalk::for_blocks_forward(RunBlock run_block) {
  for (size_t i = 0; i < m_.layers.size(); ++i) {
    const bool stands_for_more = m_.left_out[i] > 0;
    const ClassBytes before = ledger_.live();
    ledger_.start_segment();
    run_block(i);
    if (!stands_for_more) continue;
    ClassBytes change = ledger_.live();
    for (size_t c = 0; c < kNumClasses; ++c) change[c] -= before[c];
    ledger_.note_repeated_peak(ledger_.segment_live(), change, m_.left_out[i]);
    ledger_.repeat(change, m_.left_out[i]);
  }
}

void FsdpWalk::forward() {
  ledger_.enter(MemoryPhase::kForward);
  tokens_ = ledger_.allocate(8 * m_.num_tokens, MemoryClass::kWorkspace);
  labels_ = ledger_.allocate(8 * m_.num_tokens, MemoryClass::kWorkspace);
  ShardedUnit& first = m_.units[m_.embedding_unit];
  engine_->before_forward(first);
  if (m_.has_embedding()) {
    play(m_.embedding_trace.forward, embedding_slots_.data(), first, m_.embedding_places);
    activation_ = embedding_slots_[static_cast<size_t>(m_.embedding_trace.output)];
  } else {
    activation_ = ledger_.allocate(m_.residual_bytes, MemoryClass::kActivation);  // received
  }
  if (m_.embedding_apart) engine_->after_forward(first);
  for_blocks_forward([this](size_t i) { forward_block(i); });
  ledger_.enter(MemoryPhase::kLoss);
  ShardedUnit& last = m_.units[m_.head_unit];
  if (m_.head_apart) engine_->before_forward(last);
  head_slots_[Trace::kInput] = activation_;
  if (m_.has_head()) {
    play(m_.head_trace.forward, head_slots_.data(), last, m_.head_places);
    make_reference_logits(m_, ledger_);
  } else {
    ledger_.free(head_slots_[Trace::kInput]);  // sent
  }
  if (m_.head_apart) engine_->after_forward(last);
  if (!m_.embedding_apart) engine_->after_forward(first);
  engine_->end_forward();
}

void FsdpWalk::backward() {
  ledger_.enter(MemoryPhase::kLoss);
  if (!std::exchange(backward_workspace_, true)) ledger_.allocate(cublas_workspace_bytes(s_.gpu), MemoryClass::kWorkspace);
  ShardedUnit& last = m_.units[m_.head_unit];
  if (m_.has_head()) {
    play(m_.head_trace.backward, head_slots_.data(), last, m_.head_places);
    gradient_ = head_slots_[static_cast<size_t>(m_.head_trace.input_gradient)];
  } else {
    gradient_ = ledger_.allocate(m_.residual_bytes, MemoryClass::kActivation);  // received
  }
  if (m_.head_apart) engine_->after_backward(last);
  ledger_.enter(MemoryPhase::kBackward);
  for (size_t i = m_.layers.size(); i-- > 0;) {
    const bool stands_for_more = m_.left_out[i] > 0;
    const ClassBytes before = ledger_.live();
    ledger_.start_segment();
    backward_block(i);
    if (!stands_for_more) continue;
    ClassBytes change = ledger_.live();
    for (size_t c = 0; c < kNumClasses; ++c) change[c] -= before[c];
    ledger_.note_repeated_peak(ledger_.segment_live(), change, m_.left_out[i]);
    ledger_.repeat(change, m_.left_out[i]);
  }
  if (m_.has_embedding()) {
    embedding_slots_[Trace::kGradient] = gradient_;
    play(m_.embedding_trace.backward, embedding_slots_.data(), m_.units[m_.embedding_unit], m_.embedding_places);
  } else {
    ledger_.free(gradient_);
  }
  for (const int16_t slot : m_.head_trace.held) ledger_.free(head_slots_[static_cast<size_t>(slot)]);
  for (const int16_t slot : m_.embedding_trace.held) ledger_.free(embedding_slots_[static_cast<size_t>(slot)]);
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
  const ProgramSection& head = m_.program->heads[static_cast<size_t>(m_.loss)];
  const TraceOptions options{TraceMode::kNoGradient, false, m_.residual_bytes};
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
  tokens_ = ledger_.allocate(8 * m_.num_tokens, MemoryClass::kWorkspace);
  labels_ = ledger_.allocate(8 * m_.num_tokens, MemoryClass::kWorkspace);
  ShardedUnit& first = m_.units[m_.embedding_unit];
  ShardedUnit& last = m_.units[m_.head_unit];
  std::vector<Handle> slots, embedding_slots;
  engine_->before_forward(first);
  const Trace embedding = traced(m_.program->embedding, m_.facts);
  Trace blocks[2];
  for (size_t kind = 0; kind < 2; ++kind)
    if (m_.blocks[kind].present) blocks[kind] = traced(m_.program->block, m_.blocks[kind].facts);
  activation_ = {};
  if (m_.has_embedding()) {
    played(embedding, embedding_slots, first, m_.embedding_places);
  } else {
    activation_ = ledger_.allocate(m_.residual_bytes, MemoryClass::kActivation);  // received
  }
  if (m_.embedding_apart) engine_->after_forward(first);
  for_blocks_forward([&](size_t i) {
    ShardedUnit* experts = m_.experts_unit(i);
    engine_->before_forward(m_.block_unit(i));
    if (experts != nullptr) engine_->before_forward(*experts);
    if (m_.gathers_ahead && i + 1 < m_.layers.size()) gather_ahead(i + 1);
    played(blocks[is_expert_layer(s_.model, m_.layers[i]) ? 1 : 0], slots, m_.block_unit(i), m_.block_kind(i).places);
    if (experts != nullptr) engine_->after_forward(*experts);
    engine_->after_forward(m_.block_unit(i));
  });
  if (m_.head_apart) engine_->before_forward(last);
  if (m_.has_head()) {
    const Trace loss = traced(head, m_.facts);
    played(loss, slots, last, m_.head_places);
    for (const int16_t slot : loss.held) ledger_.free(slots[static_cast<size_t>(slot)]);
  } else {
    ledger_.free(activation_);  // sent
  }
  for (const int16_t slot : embedding.held)
    if (m_.has_embedding()) ledger_.free(embedding_slots[static_cast<size_t>(slot)]);
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
