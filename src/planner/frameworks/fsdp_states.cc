#include "planner/frameworks/fsdp_states.h"

#include <algorithm>
#include <array>

#include "planner/frameworks/state_bytes.h"

namespace distsetup::replay {
namespace {

// Of the micro-batches a part of a pipeline holds activations of, the one that runs included; parts of one with virtual stages (arXiv
// 2104.04473, section 2.2). 1F1B: the r-th of p ranks has p - r in flight. Interleaved, in pieces of a rank's v stages: two for
// each rank behind it, all micro-batches of a round of the earlier v - 1 stages, and the one that runs.
double micro_batches_in_flight(const Setup& s, PipelinePart part) {
  if (s.pp == 1) return 1;
  const double p = s.pp, v = std::max(s.virtual_stages, 1), all = static_cast<double>(std::max<int64_t>(s.gradient_accumulation, 1));
  if (s.pipeline_order == PipelineOrder::kGpipe) return all;
  const double rank = part == PipelinePart::kFirst ? 0 : part == PipelinePart::kSecond ? 1 : p - 1;
  return std::min(all, v == 1 ? p - rank : (2 * (p - rank - 1) + (v - 1) * p + 1) / v);
}

}  // namespace

int64_t num_received(const FsdpModel& m) {
  if (m.s.pp == 1) return 0;
  const int64_t stages = std::max(m.s.virtual_stages, 1), directions = 2 * stages - (m.part == PipelinePart::kSecond ? 0 : 1);
  return directions * std::max<int64_t>(m.s.scheduled_micro_batches > 0 ? m.s.scheduled_micro_batches : m.s.gradient_accumulation, 1);
}

std::vector<int64_t> saved_by_others(const FsdpModel& m, const Trace& trace) {
  const double others = micro_batches_in_flight(m.s, m.part) - 1;
  if (others <= 0) return {};
  const auto whole = static_cast<size_t>(others);
  std::vector<int64_t> bytes(whole, saved_bytes(m, trace));
  if (others > static_cast<double>(whole)) bytes.push_back(as_bytes(others - static_cast<double>(whole), saved_bytes(m, trace)));
  return bytes;
}

int64_t saved_bytes(const FsdpModel& m, const Trace& trace) {
  int64_t bytes = trace.input_freed_forward ? 0 : m.residual_bytes;
  for (const Event& event : trace.forward) {
    if (event.kind == Event::Kind::kAllocate && event.slot != trace.output) bytes += rounded_size(event.bytes);
    if (event.kind == Event::Kind::kFree) bytes -= rounded_size(event.bytes);
  }
  return bytes;
}

// What the 4-bit matrices of a block read: both norms' outputs (one, where attention and MLP share it), the attention's, the MLP's
// product.
int64_t quantized_input_bytes(const FsdpModel& m) {
  const int64_t norms = (m.s.model.norms_per_layer == 1 ? 1 : 2) * m.s.model.hidden;
  const int64_t compute_bytes = m.s.compute == Dtype::kF32 ? 4 : 2;
  return compute_bytes * m.num_tokens * (norms + m.s.model.num_heads * m.s.model.head_size + m.s.model.feed_forward);
}

// Checkpoint: what is trained, with its optimizer's state. Host: what is offloaded, of all ranks of a node (gradients come along, the
// optimizer reads them there; so does DPO's reference), and pages of a paged optimizer.
void count_host_and_disk(const FsdpModel& m, MemoryEstimate& estimate) {
  double trained_bytes = 0, moments = 0, parameters = 0, reference = 0;
  const double block_moments = stored_state_bytes(m.s).optimizer, other_moments = adam_state_bytes(m.s).optimizer;
  for_stored(m, [&](int64_t elements, double bytes, bool is_trained, int64_t count, bool in_block_matrix) {
    const auto all = static_cast<double>(elements * count);
    parameters += bytes * all;
    if (holds_reference(m.s)) reference += std::min(2.0, bytes) * all;
    if (!is_trained) return;
    trained_bytes += bytes * all;
    moments += (in_block_matrix ? block_moments : other_moments) * all;
  });
  const double ranks = m.unsharded() ? 1 : m.shards();
  // What several ranks hold alike is written once (torch/distributed/checkpoint/_dedup_save_plans.py).
  double again = 0;
  for (const ShardedUnit& unit : m.units) {
    for (const UnitWeight& weight : unit.kind->weights) {
      if (!weight.trained || weight.copies == 1) continue;
      const double held = static_cast<double>(weight.padded / unit.kind->shards * unit.count) * ranks;
      again +=
          held * (m.s.tp - m.s.tp / weight.copies) * (weight.stored_bytes + (weight.in_block_matrix ? block_moments : other_moments));
    }
  }
  estimate.checkpoint_bytes = static_cast<int64_t>((trained_bytes + moments) * ranks * m.s.tp - again);
  double host = 0;
  if (m.s.offload.parameters != OffloadPlace::kNone) host += parameters + trained_bytes + reference;
  if (m.s.offload.optimizer != OffloadPlace::kNone || m.s.offload.parameters != OffloadPlace::kNone || m.s.paged_optimizer)
    host += moments;
  if (m.offloads_activations()) host += static_cast<double>(m.residual_bytes * m.s.model.num_layers);
  estimate.host_bytes_per_node = static_cast<int64_t>(host * m.s.gpus_per_node);
}

void make_reference_logits(const FsdpModel& model, Ledger& ledger) {
  const int64_t logits = reference_logits_bytes(model.s, model.num_tokens);
  if (logits == 0) return;
  std::array<Handle, kLogitsAtReference - 1> others;
  for (Handle& other : others) other = ledger.allocate(logits, MemoryClass::kActivation);
  for (Handle& other : others) ledger.free(other);
}

}  // namespace distsetup::replay
