// What a rank stores between steps, and what its blocks keep for backward.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "planner/frameworks/fsdp_model.h"
#include "planner/frameworks/state_bytes.h"

namespace distsetup::replay {

// What is stored between steps, in the order it is made: per parameter (FSDP2, unsharded) or per unit (FSDP1), the embedding first and
// the head last. visit(elements of the shard, bytes per element, trained, times, a matrix in a block).
template <class Visit>
void for_stored(const FsdpModel& m, Visit visit) {
  const auto weights = [&](const ShardedUnit& unit, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const UnitWeight& weight = unit.kind->weights[i];
      visit(weight.padded / unit.kind->shards, weight.stored_bytes, weight.trained, unit.count, weight.in_block_matrix);
    }
  };
  if (m.s.traits().flat_parameters && !m.unsharded()) {
    for (const ShardedUnit& unit : m.units) {
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
      static_cast<size_t>(std::count_if(m.embedding_places.begin(), m.embedding_places.end(), [](int place) { return place >= 0; }));
  const ShardedUnit& first = m.units[m.embedding_unit];
  const size_t split = m.unsharded() ? first.kind->weights.size() : std::min(own, first.kind->weights.size());
  weights(first, 0, split);
  for (size_t i = 0; i < m.layers.size(); ++i) {
    weights(m.units[m.first_block + i], 0, m.block_kind(i).unit.weights.size());
    if (m.expert_units[i] >= 0) weights(m.units[static_cast<size_t>(m.expert_units[i])], 0, m.block_kind(i).experts.weights.size());
  }
  weights(first, split, first.kind->weights.size());
  if (m.head_apart) weights(m.units[m.head_unit], 0, m.head_kind.weights.size());
}

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

// Tensors that the stages of a rank receive, of a step: torch.distributed.pipelining makes a buffer for each micro-batch and direction
// when it starts, and keeps it (stage.py, _prepare_forward_infra and _create_grad_recv_info).
int64_t num_received(const FsdpModel& model);
// What a block keeps for micro-batches of a pipeline beside the one that runs.
std::vector<int64_t> saved_by_others(const FsdpModel& model, const Trace& trace);
// What a block keeps for its backward.
int64_t saved_bytes(const FsdpModel& model, const Trace& trace);
int64_t quantized_input_bytes(const FsdpModel& model);
// Adds host and disk to `estimate`.
void count_host_and_disk(const FsdpModel& model, MemoryEstimate& estimate);

// The policy's log-softmax waits for backward; its logits live on while those of DPO's reference come and go.
void make_reference_logits(const FsdpModel& model, Ledger& ledger);

}  // namespace distsetup::replay
