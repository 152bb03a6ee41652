// Memory of FSDP2, FSDP1, DDP and one GPU: the block traces of a program (replay/tape.h) between the events of an engine
// (fsdp_engine.h), for one optimizer step (simulate: live bytes) or two (replay: through the caching allocator; the second step meets
// a pool that the first one and the new moments have cut up).
// simulate walks three blocks: the first, one that stands for all in the middle, the last. Between two identical blocks live bytes
// move by the same amount each time, so the middle's peak and its change carry over to those that were left out.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "planner/frameworks/frameworks.h"
#include "planner/frameworks/fsdp_engine.h"
#include "planner/frameworks/libraries.h"
#include "planner/replay/allocator.h"
#include "planner/replay/ledger.h"
#include "planner/replay/program_file.h"
#include "planner/replay/tape.h"

namespace distsetup {
namespace replay {
namespace {

constexpr int kReplayedSteps = 2;

// One weight of a section: which unit holds it, and where.
struct WeightPlace {
  int unit_role = 0;
  int index = -1;
};

int64_t as_bytes(double per_element, int64_t elements) { return static_cast<int64_t>(per_element * static_cast<double>(elements)); }

// Buffers that the optimizer keeps for one parameter of n elements.
template <class Visit>
void for_optimizer_buffers(const Setup& s, const StateBytes& state, int64_t n, Visit visit) {
  constexpr int64_t kSmallest8bit = 4096;  // bitsandbytes keeps smaller ones in fp32
  if (s.paged_optimizer || n == 0) return;
  if (s.optimizer == OptimizerKind::kAdamW8bit && n < kSmallest8bit) {
    visit(4 * n);
    visit(4 * n);
    return;
  }
  switch (s.optimizer) {
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdamW8bit:
    case OptimizerKind::kAdamW4bit:
      visit(as_bytes(state.optimizer / 2, n));
      visit(as_bytes(state.optimizer / 2, n));
      break;
    case OptimizerKind::kLion:
    case OptimizerKind::kSgdMomentum:
    case OptimizerKind::kMuon: visit(as_bytes(state.optimizer, n)); break;
    case OptimizerKind::kAdafactor:
    case OptimizerKind::kSgd: break;
  }
}

// A setup's program made concrete: units, sizes, traces.
struct Model {
  const BlockProgram* program = nullptr;
  SymbolValues symbols{};
  uint64_t facts = 0;
  UnitKind embedding_kind, block_kind, head_kind;  // embedding_kind: the root's when the head is in it
  bool head_apart = false, embedding_apart = false;
  std::vector<int> embedding_places, block_places, head_places;  // section weight -> index in its unit; -1: not there
  bool tied_head_in_embedding = false;
  Trace embedding, block_kept, block_recomputed, head;
  bool any_kept = false, any_recomputed = false;
};

class Walk {
 public:
  Walk(const Setup& setup, Allocator* allocator) : s_(setup), ledger_(allocator), state_(state_bytes(setup)) { prepare(); }

  void run(int steps) {
    load();
    for (int step = 0; step < steps; ++step) {
      const int micro_batches = s_.gradient_accumulation > 1 ? 2 : 1;
      for (int i = 0; i < micro_batches && !ledger_.ran_out(); ++i) {
        forward();
        backward();
      }
      optimizer_step();
      engine_->zero_gradients();
      if (ledger_.counts_only()) ledger_.forget(MemoryClass::kGradient);
    }
  }
  const Ledger& ledger() const { return ledger_; }
  void count_host_and_disk(MemoryEstimate& estimate) const;
  // simulate only: the state a step starts from has the moments already.
  void start_steady() { steady_ = true; }

 private:
  bool is_recomputed(int64_t layer) const {
    if (s_.recompute == ActivationRecompute::kEveryK) return layer % s_.recompute_every_k == s_.recompute_every_k - 1;
    return s_.recompute != ActivationRecompute::kNone;
  }
  int shards() const { return s_.sharding == Sharding::kDdp ? 1 : s_.dp_shard * s_.cp; }
  bool unsharded() const { return s_.framework == Framework::kDdp || shards() == 1; }

  bool has_buckets() const { return s_.framework == Framework::kDdp && s_.dp_replicate > 1; }
  bool offloads_activations() const { return s_.offload.activations != OffloadPlace::kNone; }

  void prepare();
  void make_kind(const Section& section, UnitKind& kind, std::vector<int>& places) const;
  void make_units();
  std::vector<bool> trained(const Section& section) const;
  void load();
  void forward();
  void backward();
  void forward_block(size_t i);
  void backward_block(size_t i);
  void optimizer_step();
  void release_retained();
  void offload_block(size_t i);
  void restore_block(size_t i);
  void play(const std::vector<Event>& events, Handle* slots, Unit& unit, const std::vector<int>& places);
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
  Unit& block_unit(size_t i) { return units_[first_block_ + i]; }
  const Trace& block_trace(size_t i) const { return is_recomputed(layers_[i]) ? m_.block_recomputed : m_.block_kept; }

  const Setup& s_;
  Ledger ledger_;
  StateBytes state_;
  Model m_;
  std::vector<Unit> units_;
  std::vector<int64_t> layers_;  // that are walked
  int64_t left_out_ = 0;         // identical to layers_[1]
  size_t first_block_ = 0, embedding_unit_ = 0, head_unit_ = 0;
  std::unique_ptr<Engine> engine_;
  std::vector<Handle> block_slots_, embedding_slots_, head_slots_;
  std::vector<bool> offloaded_;  // by block and slot
  size_t slots_per_block_ = 0;
  Handle activation_, gradient_, tokens_, labels_;
  int64_t residual_bytes_ = 0;
  bool retains_ = false;  // inputs of recomputed blocks and their gradients, until backward is over
  bool steady_ = false, backward_workspace_ = false, moments_made_ = false;
};

std::vector<bool> Walk::trained(const Section& section) const {
  std::vector<bool> trained(section.weights.size(), true);
  if (s_.finetune == Finetune::kFull) return trained;
  for (size_t i = 0; i < trained.size(); ++i) trained[i] = section.weights[i].adapter;
  return trained;
}

void Walk::make_kind(const Section& section, UnitKind& kind, std::vector<int>& places) const {
  const std::vector<bool> is_trained = trained(section);
  const int64_t shard = unsharded() ? 1 : shards();
  places.assign(section.weights.size(), -1);
  for (size_t i = 0; i < section.weights.size(); ++i) {
    const Weight& weight = section.weights[i];
    if (!weight.when.holds(m_.facts)) continue;
    const int64_t rows = weight.out.evaluate(m_.symbols), columns = weight.in.evaluate(m_.symbols);
    UnitWeight made;
    made.elements = rows * columns;
    made.padded = columns * ((rows + shard - 1) / shard * shard);
    made.trained = is_trained[i];
    made.quantized = s_.finetune == Finetune::kQlora && weight.matrix && !weight.target.empty();
    made.stored_bytes = weight.adapter                   ? bytes_of(s_.lora.dtype)
                        : s_.finetune == Finetune::kFull ? state_.parameter
                        : made.quantized                 ? bytes_of(s_.frozen_dtype)
                                                         : std::max(2.0, bytes_of(s_.frozen_dtype));
    if (made.quantized && !unsharded()) {
      const double packed = s_.frozen_dtype == StorageDtype::kInt8 ? 1 : 0.5;
      made.scale_bytes = made.stored_bytes - packed;
      made.stored_bytes = packed;
    }
    made.gathered_bytes =
        s_.finetune == Finetune::kFull || weight.adapter ? m_.symbols[static_cast<size_t>(Symbol::kComputeBytes)] : made.stored_bytes;
    places[i] = static_cast<int>(kind.weights.size());
    kind.weights.push_back(made);
    kind.padded += made.padded;
    kind.gathered_bytes += as_bytes(made.gathered_bytes, made.padded);
    if (made.trained) kind.trained_padded += made.padded;
  }
}

void Walk::prepare() {
  m_.program = s_.own_program ? s_.own_program.get() : find_program(s_.program);
  CHECK(m_.program != nullptr, "unknown program '{}'", s_.program);
  fill_symbols(s_, m_.symbols);
  m_.facts = facts_of(s_);
  const Section& head = m_.program->heads[static_cast<size_t>(s_.loss)];
  CHECK(!head.ops.empty(), "program '{}' has no loss '{}'", m_.program->id, loss_name(s_.loss));

  m_.head_apart = s_.software.wrapping != UnitWrapping::kRoot && !unsharded();
  m_.embedding_apart = s_.software.wrapping == UnitWrapping::kAllApart && !unsharded();
  make_kind(m_.program->embedding, m_.embedding_kind, m_.embedding_places);
  make_kind(m_.program->block, m_.block_kind, m_.block_places);
  make_kind(head, m_.head_apart ? m_.head_kind : m_.embedding_kind, m_.head_places);

  const int64_t* v = m_.symbols;
  residual_bytes_ =
      v[static_cast<size_t>(Symbol::kResidualBytes)] * s_.model.hidden * s_.tokens() / v[static_cast<size_t>(Symbol::kSequenceShards)];
  TraceOptions keep{TraceMode::kKeepAll, false, residual_bytes_};
  m_.embedding = trace_section(m_.program->embedding, m_.facts, v, trained(m_.program->embedding), keep);
  m_.head = trace_section(head, m_.facts, v, trained(head), keep);
  const std::vector<bool> block_trained = trained(m_.program->block);
  if (s_.recompute == ActivationRecompute::kNone || s_.recompute == ActivationRecompute::kEveryK) {
    m_.block_kept = trace_section(m_.program->block, m_.facts, v, block_trained, keep);
  }
  if (s_.recompute != ActivationRecompute::kNone) {
    TraceOptions again = keep;
    again.mode = s_.recompute == ActivationRecompute::kOpSelective ? TraceMode::kOpSelective : TraceMode::kFull;
    again.reentrant = s_.reentrant_checkpoint;
    retains_ = s_.framework == Framework::kFsdp1 && !unsharded() && s_.finetune != Finetune::kFull && s_.reentrant_checkpoint &&
               s_.recompute == ActivationRecompute::kFull;
    again.retains_input = retains_;
    m_.block_recomputed = trace_section(m_.program->block, m_.facts, v, block_trained, again);
  }
  make_units();
}

void Walk::make_units() {
  const int64_t all = s_.model.num_layers;
  const bool uniform = s_.recompute != ActivationRecompute::kEveryK;
  if (ledger_.counts_only() && uniform && !offloads_activations() && all > 3) {
    layers_ = {0, 1, all - 1};
    left_out_ = all - 3;
  } else {
    layers_.resize(static_cast<size_t>(all));
    for (int64_t i = 0; i < all; ++i) layers_[static_cast<size_t>(i)] = i;
  }
  const auto add = [this](const UnitKind& kind) {
    units_.emplace_back();
    units_.back().kind = &kind;
    return units_.size() - 1;
  };
  units_.reserve(layers_.size() + 2);
  embedding_unit_ = add(m_.embedding_kind);
  first_block_ = units_.size();
  for (size_t i = 0; i < layers_.size(); ++i) add(m_.block_kind);
  if (left_out_ > 0) block_unit(1).count += left_out_;
  head_unit_ = m_.head_apart ? add(m_.head_kind) : embedding_unit_;

  const bool never = !s_.reshard_after_forward || s_.sharding == Sharding::kZero2;
  for (Unit& unit : units_) unit.reshard_after_forward = !never;
  if (!m_.embedding_apart) units_[embedding_unit_].reshard_after_forward = false;  // the root
  if (m_.head_apart) units_[head_unit_].reshard_after_forward = s_.reshard_root && !never;
  if (s_.software.last_block_stays_gathered && !s_.reshard_root) block_unit(layers_.size() - 1).reshard_after_forward = false;

  EngineOptions options;
  options.shards = shards();
  options.compute_bytes = m_.symbols[static_cast<size_t>(Symbol::kComputeBytes)];
  options.gradient_bytes = options.compute_bytes;
  options.parameter_bytes = bytes_of(s_.parameter_dtype);
  options.reduce_bytes = bytes_of(s_.reduce_dtype);
  options.cast = options.parameter_bytes != static_cast<double>(options.compute_bytes);
  options.shard_from_host = s_.offload.parameters != OffloadPlace::kNone;
  options.gradient_leaves = options.shard_from_host || s_.optimizer_implementation == OptimizerImplementation::kInBackward;
  options.gradients_in_buckets = has_buckets() && s_.software.gradient_as_bucket_view;
  options.reduce_scatter_pool = s_.software.reduce_scatter_pool;
  // Forward under a reentrant checkpoint runs without gradients and registers no hook on its outputs; the hook of the second forward
  // finds the order of the first one spent (torch/distributed/fsdp/_exec_order_utils.py).
  options.prefetch_in_backward = !(s_.framework == Framework::kFsdp1 && s_.reentrant_checkpoint);
  // torch/distributed/fsdp/_limiter_utils.py: two all-gathers; without the limiter as many as the CPU runs ahead.
  constexpr int kLimited = 2, kUnlimited = 14;
  options.frees_in_flight = ledger_.counts_only() ? 0 : s_.software.limit_all_gathers ? kLimited : kUnlimited;
  engine_ = unsharded()                         ? make_unsharded_engine(ledger_, options, units_)
            : s_.framework == Framework::kFsdp1 ? make_fsdp1_engine(ledger_, options, units_)
                                                : make_fsdp2_engine(ledger_, options, units_);
  slots_per_block_ = static_cast<size_t>(std::max(m_.block_kept.num_slots, m_.block_recomputed.num_slots));
  block_slots_.resize(slots_per_block_ * layers_.size());
  if (offloads_activations()) offloaded_.resize(block_slots_.size());
  embedding_slots_.resize(static_cast<size_t>(m_.embedding.num_slots));
  head_slots_.resize(static_cast<size_t>(m_.head.num_slots));
}

// What is stored between steps, in the order it is made: per parameter (FSDP2, unsharded) or per unit (FSDP1), the embedding first and
// the head last. visit(elements of the shard, bytes per element, trained, times).
template <class Visit>
void Walk::for_stored(Visit visit) const {
  const int64_t shard = unsharded() ? 1 : shards();
  const auto weights = [&](const Unit& unit, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const UnitWeight& weight = unit.kind->weights[i];
      visit(weight.padded / shard, weight.stored_bytes, weight.trained, unit.count);
    }
  };
  if (s_.framework == Framework::kFsdp1 && !unsharded()) {
    for (const Unit& unit : units_) {
      for (const bool is_trained : {false, true}) {  // a flat parameter is one or the other; adapters are units of their own
        int64_t elements = 0;
        double bytes = 0;
        for (const UnitWeight& weight : unit.kind->weights) {
          if (weight.trained != is_trained) continue;
          elements += weight.padded;
          bytes += weight.stored_bytes * static_cast<double>(weight.padded);
        }
        if (elements > 0) visit(elements / shard, bytes / static_cast<double>(elements), is_trained, unit.count);
      }
    }
    return;
  }
  const size_t own = m_.program->embedding.weights.size();  // of the embedding; the rest of a root unit is the head's
  const Unit& first = units_[embedding_unit_];
  const size_t split = unsharded() ? first.kind->weights.size() : std::min(own, first.kind->weights.size());
  weights(first, 0, split);
  for (size_t i = 0; i < layers_.size(); ++i) weights(units_[first_block_ + i], 0, m_.block_kind.weights.size());
  weights(first, split, first.kind->weights.size());
  if (m_.head_apart) weights(units_[head_unit_], 0, m_.head_kind.weights.size());
}

void Walk::load() {
  ledger_.enter(Phase::kLoad);
  const bool on_device = s_.offload.parameters == OffloadPlace::kNone;
  for_stored([&](int64_t elements, double bytes, bool is_trained, int64_t count) {
    if (on_device) book(as_bytes(bytes, elements), MemoryClass::kParameter, count);
    if (on_device && s_.frozen_reference) book(as_bytes(std::min(2.0, bytes), elements), MemoryClass::kParameter, count);
    if (has_buckets() && is_trained) book(as_bytes(bytes_of(s_.gradient_dtype), elements), MemoryClass::kCommunication, count);
  });
  for (const Unit& unit : units_) {
    for (const UnitWeight& weight : unit.kind->weights) {
      if (weight.scale_bytes > 0) book(as_bytes(weight.scale_bytes, weight.elements), MemoryClass::kParameter, unit.count);
    }
  }
  constexpr int64_t kRopePositions = 8192;
  if (s_.model.learned_positions == 0) {
    ledger_.allocate(8 * kRopePositions * s_.model.head_size / 2, MemoryClass::kWorkspace);  // cosines and sines
  }
  ledger_.allocate(cublas_workspace_bytes(s_.gpu), MemoryClass::kWorkspace);
  if (!steady_) return;
  ledger_.allocate(cublas_workspace_bytes(s_.gpu), MemoryClass::kWorkspace);
  backward_workspace_ = true;
  optimizer_step();
}

void Walk::play(const std::vector<Event>& events, Handle* slots, Unit& unit, const std::vector<int>& places) {
  for (const Event& event : events) {
    switch (event.kind) {
      case Event::Kind::kAllocate: slots[event.slot] = ledger_.allocate(event.bytes, event.memory_class); break;
      case Event::Kind::kFree: ledger_.free(slots[event.slot]); break;
      case Event::Kind::kWeightGradient: {
        const int place = places[static_cast<size_t>(event.slot)];
        if (place >= 0) {
          engine_->weight_gradient(unit, place);
        } else {
          engine_->weight_gradient(units_[embedding_unit_], 0);  // a tied head: the embedding's
        }
        break;
      }
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

void Walk::forward_block(size_t i) {
  Unit& unit = block_unit(i);
  const Trace& trace = block_trace(i);
  Handle* slots = &block_slots_[i * slots_per_block_];
  engine_->before_forward(unit);
  slots[Trace::kInput] = activation_;
  play(trace.forward, slots, unit, m_.block_places);
  engine_->after_forward(unit);
  if (trace.input_freed_forward) ledger_.free(slots[Trace::kInput]);
  activation_ = slots[trace.output];
  if (offloads_activations()) offload_block(i);
}

// What the block before this one saved goes to the host while this one runs: two blocks' worth stays on the device.
void Walk::offload_block(size_t i) {
  if (i == 0) return;
  Handle* slots = &block_slots_[(i - 1) * slots_per_block_];
  const int16_t output = block_trace(i - 1).output;
  for (int16_t slot = 0; slot < static_cast<int16_t>(slots_per_block_); ++slot) {
    if (slot == output || slot == Trace::kGradient || !slots[slot]) continue;
    offloaded_[(i - 1) * slots_per_block_ + static_cast<size_t>(slot)] = true;
    ledger_.free(slots[slot]);
  }
}

void Walk::restore_block(size_t i) {
  const Trace& trace = block_trace(i);
  for (size_t slot = 0; slot < slots_per_block_; ++slot) {
    const size_t index = i * slots_per_block_ + slot;
    if (!offloaded_[index]) continue;
    offloaded_[index] = false;
    block_slots_[index] = ledger_.allocate(trace.bytes_of_slot(static_cast<int16_t>(slot), residual_bytes_), MemoryClass::kActivation);
  }
}

void Walk::backward_block(size_t i) {
  Unit& unit = block_unit(i);
  const Trace& trace = block_trace(i);
  Handle* slots = &block_slots_[i * slots_per_block_];
  if (offloads_activations()) restore_block(i);
  engine_->before_backward(unit);
  slots[Trace::kGradient] = gradient_;
  play(trace.backward, slots, unit, m_.block_places);
  gradient_ = std::exchange(slots[trace.input_gradient], {});
  if (!retains_) slots[Trace::kGradient] = {};
  if (retains_ && i + 1 == layers_.size()) ledger_.free(slots[Trace::kGradient]);  // the head's: no block's input gradient
  engine_->after_backward(unit);
}

// FSDP1 reshards a unit without trained parameters through a hook on its inputs, and the hook's handle keeps the input of the
// recomputed block and its gradient until backward is over (torch/distributed/fsdp/_runtime_utils.py,
// _register_post_backward_reshard_only_hook).
void Walk::release_retained() {
  for (size_t i = 0; retains_ && i < layers_.size(); ++i) {
    Handle* slots = &block_slots_[i * slots_per_block_];
    ledger_.free(slots[Trace::kInput]);
    ledger_.free(slots[Trace::kGradient]);
  }
  if (retains_ && left_out_ > 0) {
    ClassBytes less{};
    less[static_cast<size_t>(MemoryClass::kActivation)] = -2 * rounded_size(residual_bytes_);
    ledger_.repeat(less, left_out_);
  }
}

void Walk::forward() {
  ledger_.enter(Phase::kForward);
  tokens_ = ledger_.allocate(8 * s_.tokens(), MemoryClass::kWorkspace);
  labels_ = ledger_.allocate(8 * s_.tokens(), MemoryClass::kWorkspace);
  Unit& first = units_[embedding_unit_];
  engine_->before_forward(first);
  play(m_.embedding.forward, embedding_slots_.data(), first, m_.embedding_places);
  if (m_.embedding_apart) engine_->after_forward(first);
  activation_ = embedding_slots_[static_cast<size_t>(m_.embedding.output)];
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool stands_for_more = i == 1 && left_out_ > 0;
    const ClassBytes before = ledger_.live();
    ledger_.start_segment();
    forward_block(i);
    if (!stands_for_more) continue;
    ClassBytes change = ledger_.live();
    for (size_t c = 0; c < kNumClasses; ++c) change[c] -= before[c];
    ledger_.note_repeated_peak(ledger_.segment_live(), change, left_out_);
    ledger_.repeat(change, left_out_);
  }
  ledger_.enter(Phase::kLoss);
  Unit& last = units_[head_unit_];
  if (m_.head_apart) engine_->before_forward(last);
  head_slots_[Trace::kInput] = activation_;
  play(m_.head.forward, head_slots_.data(), last, m_.head_places);
  if (m_.head_apart) engine_->after_forward(last);
  if (!m_.embedding_apart) engine_->after_forward(first);
  engine_->end_forward();
}

void Walk::backward() {
  ledger_.enter(Phase::kLoss);
  if (!backward_workspace_) ledger_.allocate(cublas_workspace_bytes(s_.gpu), MemoryClass::kWorkspace);
  backward_workspace_ = true;
  Unit& last = units_[head_unit_];
  play(m_.head.backward, head_slots_.data(), last, m_.head_places);
  gradient_ = head_slots_[static_cast<size_t>(m_.head.input_gradient)];
  if (m_.head_apart) engine_->after_backward(last);
  ledger_.enter(Phase::kBackward);
  for (size_t i = layers_.size(); i-- > 0;) {
    const bool stands_for_more = i == 1 && left_out_ > 0;
    const ClassBytes before = ledger_.live();
    ledger_.start_segment();
    backward_block(i);
    if (!stands_for_more) continue;
    ClassBytes change = ledger_.live();
    for (size_t c = 0; c < kNumClasses; ++c) change[c] -= before[c];
    ledger_.note_repeated_peak(ledger_.segment_live(), change, left_out_);
    ledger_.repeat(change, left_out_);
  }
  embedding_slots_[Trace::kGradient] = gradient_;
  play(m_.embedding.backward, embedding_slots_.data(), units_[embedding_unit_], m_.embedding_places);
  for (const int16_t slot : m_.head.held) ledger_.free(head_slots_[static_cast<size_t>(slot)]);
  for (const int16_t slot : m_.embedding.held) ledger_.free(embedding_slots_[static_cast<size_t>(slot)]);
  release_retained();
  engine_->end_backward();
  ledger_.free(tokens_);
  ledger_.free(labels_);
}

void Walk::optimizer_step() {
  ledger_.enter(Phase::kOptimizer);
  if (s_.offload.optimizer != OffloadPlace::kNone || s_.offload.parameters != OffloadPlace::kNone) return;  // on the CPU
  if (!moments_made_) {
    moments_made_ = true;
    for_stored([&](int64_t elements, double, bool is_trained, int64_t count) {
      if (!is_trained) return;
      for_optimizer_buffers(s_, state_, elements, [&](int64_t bytes) { book(bytes, MemoryClass::kOptimizer, count); });
    });
  }
  if (s_.optimizer_implementation != OptimizerImplementation::kForeach) return;
  std::vector<std::pair<Handle, int64_t>> temporaries;
  for_stored([&](int64_t elements, double, bool is_trained, int64_t count) {
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

// Checkpoint: what is trained, with its optimizer's state. Host: what is offloaded, of all ranks of a node (gradients come along, the
// optimizer reads them there).
void Walk::count_host_and_disk(MemoryEstimate& estimate) const {
  double trained_bytes = 0, moments = 0, parameters = 0;
  for_stored([&](int64_t elements, double bytes, bool is_trained, int64_t count) {
    parameters += bytes * static_cast<double>(elements * count);
    if (!is_trained) return;
    trained_bytes += bytes * static_cast<double>(elements * count);
    moments += state_.optimizer * static_cast<double>(elements * count);
  });
  const double ranks = unsharded() ? 1 : shards();
  estimate.checkpoint_bytes = static_cast<int64_t>((trained_bytes + moments) * ranks * s_.tp);
  double host = 0;
  if (s_.offload.parameters != OffloadPlace::kNone) host += parameters + trained_bytes;
  if (s_.offload.optimizer != OffloadPlace::kNone || s_.offload.parameters != OffloadPlace::kNone) host += moments;
  if (offloads_activations()) host += static_cast<double>(residual_bytes_ * s_.model.num_layers);
  estimate.host_bytes_per_node = static_cast<int64_t>(host * s_.gpus_per_node);
}

MemoryEstimate estimate_of(const Ledger& ledger) {
  static constexpr std::array<const char*, kNumClasses> kClasses = {
      "parameter shard", "gathered parameter", "gradient", "optimizer state", "activation", "logits", "communication", "workspace"};
  static constexpr std::array<const char*, kNumPhases> kPhases = {"load", "forward", "loss", "backward", "optimizer"};
  MemoryEstimate estimate;
  size_t peak = 0;
  for (size_t phase = 0; phase < kNumPhases; ++phase) {
    const int64_t bytes = ledger.phase_peak(static_cast<Phase>(phase));
    estimate.by_phase.push_back({kPhases[phase], bytes});
    if (bytes > ledger.phase_peak(static_cast<Phase>(peak))) peak = phase;
  }
  estimate.allocated_bytes = ledger.phase_peak(static_cast<Phase>(peak));
  estimate.peak_phase = kPhases[peak];
  const ClassBytes& live = ledger.phase_live(static_cast<Phase>(peak));
  for (size_t i = 0; i < kNumClasses; ++i) {
    if (ledger.class_peak(i) == 0) continue;
    estimate.terms.push_back({kClasses[i], live[i], ledger.class_peak(i), kPhases[static_cast<size_t>(ledger.class_peak_phase(i))]});
  }
  return estimate;
}

}  // namespace
}  // namespace replay

MemoryEstimate fsdp_memory(const Setup& setup, Depth depth) {
  if (depth == Depth::kSimulate) {
    replay::Walk walk(setup, nullptr);
    walk.start_steady();
    walk.run(1);
    MemoryEstimate estimate = replay::estimate_of(walk.ledger());
    walk.count_host_and_disk(estimate);
    return estimate;
  }
  replay::AllocatorRules rules;
  rules.expandable_segments = setup.software.expandable_segments;
  const int64_t outside = (setup.gpu.vendor == "cpu" ? 0 : setup.gpu.context_bytes) + communicator_bytes(setup);
  if (setup.gpu.usable_memory_bytes > outside) rules.capacity_bytes = setup.gpu.usable_memory_bytes - outside;
  replay::Allocator allocator(rules);
  replay::Walk walk(setup, &allocator);
  walk.run(replay::kReplayedSteps);
  MemoryEstimate estimate = replay::estimate_of(walk.ledger());
  estimate.reserved_bytes = allocator.peak_reserved_bytes();
  estimate.device_bytes = estimate.reserved_bytes + outside;
  walk.count_host_and_disk(estimate);
  estimate.ran_out = walk.ledger().ran_out();
  return estimate;
}

}  // namespace distsetup
