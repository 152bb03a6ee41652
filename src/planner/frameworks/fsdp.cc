// Memory of FSDP2, FSDP1, DDP and one GPU: the block traces of a program (replay/tape.h) between the events of an engine
// (fsdp_engine.h), for one optimizer step (simulate: live bytes) or two (replay: through the caching allocator; the second step meets
// a pool that the first one and the new moments have cut up).
// simulate walks three blocks of every run of like ones: the first, one that stands for all in the middle, the last. Between two
// identical blocks live bytes move by the same amount each time, so the middle's peak and its change carry over to those that were
// left out.
#include "planner/frameworks/fsdp.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/count.h"
#include "planner/frameworks/fsdp_walk.h"
#include "planner/frameworks/libraries.h"
#include "planner/frameworks/state_bytes.h"

namespace distsetup {
namespace replay {
namespace {

constexpr int kReplayedSteps = 2;

// Buffers that the optimizer keeps for one parameter of n elements.
template <class Visit>
void for_optimizer_buffers(const Setup& s, const StateBytes& state, int64_t n, bool in_block_matrix, Visit visit) {
  constexpr int64_t kSmallest8bit = 4096;  // bitsandbytes keeps smaller ones in fp32
  if (s.paged_optimizer || n == 0) return;
  if (s.optimizer == OptimizerKind::kAdamW8bit && n < kSmallest8bit) {
    visit(4 * n);
    visit(4 * n);
    return;
  }
  if (s.optimizer == OptimizerKind::kMuon && !in_block_matrix) {  // AdamW's
    visit(as_bytes(adam_state_bytes(s).optimizer / 2, n));
    visit(as_bytes(adam_state_bytes(s).optimizer / 2, n));
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
    case OptimizerKind::kMuon:
    case OptimizerKind::kAdafactor:
      if (state.optimizer > 0) visit(as_bytes(state.optimizer, n));
      break;
    case OptimizerKind::kSgd: break;
  }
}

}  // namespace

void FsdpWalk::run(int steps) {
  load();
  for (int step = 0; step < steps; ++step) {
    const int micro_batches = s_.gradient_accumulation > 1 ? 2 : 1;
    for (int i = 0; i < micro_batches && !ledger_.ran_out(); ++i) {
      engine_->set_reduces(!s_.software.accumulates_whole || i + 1 == micro_batches);
      forward();
      backward();
    }
    optimizer_step();
    engine_->zero_gradients();
    if (ledger_.counts_only()) ledger_.forget(MemoryClass::kGradient);
  }
}

// What is stored between steps, in the order it is made: per parameter (FSDP2, unsharded) or per unit (FSDP1), the embedding first and
// the head last. visit(elements of the shard, bytes per element, trained, times, a matrix in a block).
template <class Visit>
void FsdpWalk::for_stored(Visit visit) const {
  const auto weights = [&](const ShardedUnit& unit, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const UnitWeight& weight = unit.kind->weights[i];
      visit(weight.padded / unit.kind->shards, weight.stored_bytes, weight.trained, unit.count, weight.in_block_matrix);
    }
  };
  if (s_.traits().flat_parameters && !unsharded()) {
    for (const ShardedUnit& unit : units_) {
      for (const bool is_trained : {false, true}) {  // a flat parameter is one or the other; adapters are units of their own
        int64_t elements = 0;
        double bytes = 0;
        for (const UnitWeight& weight : unit.kind->weights) {
          if (weight.trained != is_trained) continue;
          elements += weight.padded;
          bytes += weight.stored_bytes * static_cast<double>(weight.padded);
        }
        if (elements > 0) visit(elements / unit.kind->shards, bytes / static_cast<double>(elements), is_trained, unit.count, true);
      }
    }
    return;
  }
  const auto own =
      static_cast<size_t>(std::count_if(m_.embedding_places.begin(), m_.embedding_places.end(), [](int place) { return place >= 0; }));
  const ShardedUnit& first = units_[embedding_unit_];
  const size_t split = unsharded() ? first.kind->weights.size() : std::min(own, first.kind->weights.size());
  weights(first, 0, split);
  for (size_t i = 0; i < layers_.size(); ++i) {
    weights(units_[first_block_ + i], 0, block_kind(i).unit.weights.size());
    if (expert_units_[i] >= 0) weights(units_[static_cast<size_t>(expert_units_[i])], 0, block_kind(i).experts.weights.size());
  }
  weights(first, split, first.kind->weights.size());
  if (m_.head_apart) weights(units_[head_unit_], 0, m_.head_kind.weights.size());
}

// What a block keeps for its backward.
int64_t FsdpWalk::saved_bytes(const Trace& trace) const {
  int64_t bytes = trace.input_freed_forward ? 0 : residual_bytes_;
  for (const Event& event : trace.forward) {
    if (event.kind == Event::Kind::kAllocate && event.slot != trace.output) bytes += rounded_size(event.bytes);
    if (event.kind == Event::Kind::kFree) bytes -= rounded_size(event.bytes);
  }
  return bytes;
}

// What the 4-bit matrices of a block read: both norms' outputs (one, where attention and MLP share it), the attention's, the MLP's
// product.
int64_t FsdpWalk::quantized_input_bytes() const {
  const int64_t norms = (s_.model.norms_per_layer == 1 ? 1 : 2) * s_.model.hidden;
  const int64_t compute_bytes = s_.compute == Dtype::kF32 ? 4 : 2;
  return compute_bytes * num_tokens_ * (norms + s_.model.num_heads * s_.model.head_size + s_.model.feed_forward);
}

void FsdpWalk::load() {
  ledger_.enter(MemoryPhase::kLoad);
  const bool on_device = s_.offload.parameters == OffloadPlace::kNone;
  for_stored([&](int64_t elements, double bytes, bool is_trained, int64_t count, bool) {
    if (on_device) book(as_bytes(bytes, elements), MemoryClass::kParameter, count);
    if (on_device && holds_reference(s_)) book(as_bytes(std::min(2.0, bytes), elements), MemoryClass::kParameter, count);
    if (has_buckets() && is_trained) book(as_bytes(bytes_of(s_.gradient_dtype), elements), MemoryClass::kCommunication, count);
  });
  for (const ShardedUnit& unit : units_) {
    for (const UnitWeight& weight : unit.kind->weights) {
      if (weight.scale_bytes > 0) book(as_bytes(weight.scale_bytes, weight.elements), MemoryClass::kParameter, unit.count);
    }
  }
  constexpr int64_t kRopePositions = 8192;
  if (s_.model.learned_positions == 0) {
    ledger_.allocate(8 * kRopePositions * s_.model.head_size / 2, MemoryClass::kWorkspace);  // cosines and sines
  }
  ledger_.allocate(cublas_workspace_bytes(s_.gpu), MemoryClass::kWorkspace);
  // 1F1B: the first stage has started as many micro-batches as there are stages when the first backward arrives.
  const int64_t in_flight = std::min<int64_t>(s_.pp, std::max<int64_t>(s_.gradient_accumulation, 1));
  const int64_t started = stage_ == PipelinePart::kFirst ? in_flight : stage_ == PipelinePart::kSecond ? in_flight - 1 : 1;
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (int64_t other = 1; other < started; ++other)
      in_flight_.push_back(book(saved_bytes(block_trace(i)), MemoryClass::kActivation, block_unit(i).count));
    if (s_.software.graph_outlives_backward)
      in_flight_.push_back(book(quantized_input_bytes(), MemoryClass::kActivation, block_unit(i).count));
  }
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
    for_stored([&](int64_t elements, double, bool is_trained, int64_t count, bool in_block_matrix) {
      if (!is_trained) return;
      for_optimizer_buffers(s_, state_, elements, in_block_matrix,
                            [&](int64_t bytes) { book(bytes, MemoryClass::kOptimizer, count); });
    });
  }
  if (s_.optimizer == OptimizerKind::kAdafactor) return update_with_adafactor();
  if (s_.optimizer_implementation != OptimizerImplementation::kForeach) return;
  std::vector<std::pair<Handle, int64_t>> temporaries;
  for_stored([&](int64_t elements, double, bool is_trained, int64_t count, bool) {
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
  for_stored(
      [&](int64_t elements, double, bool is_trained, int64_t, bool) { largest = is_trained ? std::max(largest, elements) : largest; });
  Handle update = ledger_.allocate(4 * largest, MemoryClass::kWorkspace),
         scaled = ledger_.allocate(4 * largest, MemoryClass::kWorkspace);
  ledger_.free(scaled);
  ledger_.free(update);
}

// Checkpoint: what is trained, with its optimizer's state. Host: what is offloaded, of all ranks of a node (gradients come along, the
// optimizer reads them there; so does DPO's reference), and pages of a paged optimizer.
void FsdpWalk::count_host_and_disk(MemoryEstimate& estimate) const {
  double trained_bytes = 0, moments = 0, parameters = 0, reference = 0;
  const double block_moments = stored_state_bytes(s_).optimizer, other_moments = adam_state_bytes(s_).optimizer;
  for_stored([&](int64_t elements, double bytes, bool is_trained, int64_t count, bool in_block_matrix) {
    const auto all = static_cast<double>(elements * count);
    parameters += bytes * all;
    if (holds_reference(s_)) reference += std::min(2.0, bytes) * all;
    if (!is_trained) return;
    trained_bytes += bytes * all;
    moments += (in_block_matrix ? block_moments : other_moments) * all;
  });
  const double ranks = unsharded() ? 1 : shards();
  estimate.checkpoint_bytes = static_cast<int64_t>((trained_bytes + moments) * ranks * s_.tp);
  double host = 0;
  if (s_.offload.parameters != OffloadPlace::kNone) host += parameters + trained_bytes + reference;
  if (s_.offload.optimizer != OffloadPlace::kNone || s_.offload.parameters != OffloadPlace::kNone || s_.paged_optimizer)
    host += moments;
  if (offloads_activations()) host += static_cast<double>(residual_bytes_ * s_.model.num_layers);
  estimate.host_bytes_per_node = static_cast<int64_t>(host * s_.gpus_per_node);
}

namespace {

constexpr std::array<const char*, kNumPhases> kPhases = {"load", "forward", "loss", "backward", "optimizer", "evaluate", "save"};

// Of a step; what comes after it adds its phases alone.
MemoryEstimate estimate_of(const Ledger& ledger) {
  static constexpr std::array<const char*, kNumClasses> kClasses = {
      "parameter shard", "gathered parameter", "gradient", "optimizer state", "activation", "logits", "communication", "workspace"};
  MemoryEstimate estimate;
  size_t peak = 0;
  for (size_t phase = 0; phase < static_cast<size_t>(MemoryPhase::kEvaluate); ++phase) {
    const int64_t bytes = ledger.phase_peak(static_cast<MemoryPhase>(phase));
    estimate.by_phase.push_back({kPhases[phase], bytes});
    if (bytes > ledger.phase_peak(static_cast<MemoryPhase>(peak))) peak = phase;
  }
  estimate.allocated_bytes = ledger.phase_peak(static_cast<MemoryPhase>(peak));
  estimate.peak_phase = kPhases[peak];
  const ClassBytes& live = ledger.phase_live(static_cast<MemoryPhase>(peak));
  for (size_t i = 0; i < kNumClasses; ++i) {
    if (ledger.class_peak(i) == 0) continue;
    estimate.terms.push_back({kClasses[i], live[i], ledger.class_peak(i), kPhases[static_cast<size_t>(ledger.class_peak_phase(i))]});
  }
  return estimate;
}

void evaluate_and_save(FsdpWalk& walk, MemoryEstimate& estimate) {
  walk.evaluate_and_save();
  for (const MemoryPhase phase : {MemoryPhase::kEvaluate, MemoryPhase::kSave})
    estimate.by_phase.push_back({kPhases[static_cast<size_t>(phase)], walk.ledger().phase_peak(phase)});
}

}  // namespace
}  // namespace replay

namespace {

MemoryEstimate simulate_stage(const Setup& setup, Blocks blocks, replay::PipelinePart stage) {
  replay::FsdpWalk walk(setup, nullptr, blocks, stage);
  walk.start_steady();
  walk.run(1);
  MemoryEstimate estimate = replay::estimate_of(walk.ledger());
  replay::evaluate_and_save(walk, estimate);
  walk.count_host_and_disk(estimate);
  return estimate;
}

MemoryEstimate replay_order(const Setup& setup, replay::PipelinePart stage, int order) {
  replay::AllocatorRules rules;
  rules.expandable_segments = setup.software.expandable_segments;
  rules.one_pool = setup.software.traced;
  const int64_t outside = (setup.gpu.vendor == "cpu" ? 0 : setup.gpu.context_bytes) + communicator_bytes(setup);
  if (setup.gpu.usable_memory_bytes > outside) rules.capacity_bytes = setup.gpu.usable_memory_bytes - outside;
  replay::Allocator allocator(rules);
  replay::FsdpWalk walk(setup, &allocator, Blocks::kAll, stage);
  if (setup.sample_lengths.mean > 0) {
    walk.run_lengths(order);
  } else {
    walk.run(replay::kReplayedSteps);
  }
  MemoryEstimate estimate = replay::estimate_of(walk.ledger());
  estimate.ran_out = walk.ledger().ran_out();
  estimate.reserved_bytes = allocator.peak_reserved_bytes();
  estimate.device_bytes = estimate.reserved_bytes + outside;
  walk.count_host_and_disk(estimate);
  if (!estimate.ran_out) replay::evaluate_and_save(walk, estimate);
  return estimate;
}

// Samples of different lengths: the mean of what several orders reserve.
MemoryEstimate replay_stage(const Setup& setup, replay::PipelinePart stage) {
  MemoryEstimate estimate = replay_order(setup, stage, 0);
  if (setup.sample_lengths.mean == 0) return estimate;
  constexpr int kOrders = 4;
  int64_t sum = estimate.reserved_bytes;
  for (int order = 1; order < kOrders; ++order) {
    const MemoryEstimate other = replay_order(setup, stage, order);
    sum += other.reserved_bytes;
    estimate.allocated_bytes = std::max(estimate.allocated_bytes, other.allocated_bytes);
    estimate.ran_out = estimate.ran_out && other.ran_out;
  }
  estimate.device_bytes += sum / kOrders - estimate.reserved_bytes;
  estimate.reserved_bytes = sum / kOrders;
  return estimate;
}

// The fullest of a pipeline's first and last rank, and of its second where the first one's layers have no experts.
template <class Predict>
MemoryEstimate of_stages(const Setup& setup, Predict predict) {
  if (setup.pp == 1) return predict(replay::PipelinePart::kWhole);
  const bool mixed = setup.model.num_experts > 0 && !setup.model.expert_layer.empty();
  MemoryEstimate fullest;
  bool ran_out = false;
  for (const replay::PipelinePart stage : {replay::PipelinePart::kFirst, replay::PipelinePart::kSecond, replay::PipelinePart::kLast}) {
    if (stage == replay::PipelinePart::kSecond && (!mixed || setup.pp < 3)) continue;
    MemoryEstimate here = predict(stage);
    ran_out = ran_out || here.ran_out;
    if (std::max(here.reserved_bytes, here.allocated_bytes) > std::max(fullest.reserved_bytes, fullest.allocated_bytes))
      fullest = std::move(here);
  }
  fullest.ran_out = ran_out;
  if (setup.finetune != Finetune::kFull) {
    fullest.checkpoint_bytes *= setup.pp;  // adapters are in every layer
    return fullest;
  }
  const StateBytes stored = stored_state_bytes(setup);  // stages differ: of the whole model
  const ParameterCount count = count_parameters(setup.model);
  const auto outside = static_cast<double>(count.embedding + count.head + count.final_norm);  // of blocks; norms in them are left out
  fullest.checkpoint_bytes = static_cast<int64_t>(static_cast<double>(count.total) * (stored.parameter + stored.optimizer) +
                                                  outside * (adam_state_bytes(setup).optimizer - stored.optimizer));
  return fullest;
}

}  // namespace

MemoryEstimate simulate_fsdp(const Setup& setup, Blocks blocks) {
  return of_stages(setup, [&](replay::PipelinePart stage) { return simulate_stage(setup, blocks, stage); });
}

MemoryEstimate fsdp_memory(const Setup& setup, Depth depth) {
  if (depth == Depth::kSimulate) return simulate_fsdp(setup, Blocks::kThree);
  return of_stages(setup, [&](replay::PipelinePart stage) { return replay_stage(setup, stage); });
}

}  // namespace distsetup
