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
#include "planner/frameworks/fsdp_states.h"
#include "planner/frameworks/fsdp_walk.h"
#include "planner/frameworks/libraries.h"
#include "planner/frameworks/state_bytes.h"

namespace distsetup {
namespace replay {
namespace {

constexpr int kReplayedSteps = 2;

// Of a step; what comes after it adds its phases alone.
MemoryEstimate estimate_of(const Ledger& ledger) {
  static constexpr std::array<const char*, kNumClasses> kClasses = {
      "parameter shard", "gathered parameter", "gradient", "optimizer state", "activation", "logits", "communication", "workspace"};
  MemoryEstimate estimate;
  size_t peak = 0;
  for (size_t phase = 0; phase < static_cast<size_t>(MemoryPhase::kEvaluate); ++phase) {
    const int64_t bytes = ledger.phase_peak(static_cast<MemoryPhase>(phase));
    estimate.by_phase.push_back({kPhaseNames[phase], bytes});
    if (bytes > ledger.phase_peak(static_cast<MemoryPhase>(peak))) peak = phase;
  }
  estimate.allocated_bytes = ledger.phase_peak(static_cast<MemoryPhase>(peak));
  estimate.peak_phase = kPhaseNames[peak];
  const ClassBytes& live = ledger.phase_live(static_cast<MemoryPhase>(peak));
  for (size_t i = 0; i < kNumClasses; ++i) {
    if (ledger.class_peak(i) == 0) continue;
    estimate.terms.push_back(
        {kClasses[i], live[i], ledger.class_peak(i), kPhaseNames[static_cast<size_t>(ledger.class_peak_phase(i))]});
  }
  return estimate;
}

void evaluate_and_save(FsdpWalk& walk, MemoryEstimate& estimate) {
  walk.evaluate_and_save();
  for (const MemoryPhase phase : {MemoryPhase::kEvaluate, MemoryPhase::kSave})
    estimate.by_phase.push_back({kPhaseNames[static_cast<size_t>(phase)], walk.ledger().phase_peak(phase)});
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
  replay::count_host_and_disk(walk.model(), estimate);
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
  replay::count_host_and_disk(walk.model(), estimate);
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
    if (stage == replay::PipelinePart::kSecond && (!mixed || setup.pp < 3)) continue;  // without experts the first one's twin
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
