// A pipeline as the states and activations of its stages: which layers a rank holds, how many micro-batches are in flight on it, and
// the most that is alive at one moment of a step beside what lives all the time. Shared by Megatron and by DeepSpeed's 3D parallelism.
// 1F1B: rank r of p has p - r micro-batches in flight; interleaved with v chunks: 2(p - r - 1) + (v - 1)p + 1 chunks
// (megatron/core/pipeline_parallel/schedules.py, get_pp_rank_microbatches); GPipe: all of them.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "planner/frameworks/lifetimes.h"
#include "planner/frameworks/traced_layers.h"

namespace distsetup {

struct StageLayers {
  int64_t num_layers = 0, num_expert_layers = 0;
  bool last_has_experts = false;
  bool has_embedding = false, has_head = false;
  int64_t mtp_layers = 0;  // of multi-token prediction, behind the last one; each has the head's loss of its own
  int64_t in_flight = 1;   // chunks of the stage whose activations are kept at once
};
// Layers are spread evenly; where the embedding and the head count as layers (their number then divides), the first and last stage get
// one less; what is left over goes to the middle. Of a program whose stages go by cost, by that.
std::vector<StageLayers> pipeline_stages(const Setup& setup);

// The parts of the program that a setup runs: of a program of lifetimes (`experts` is nullptr for dense models), or traced ones.
struct StageParts {
  std::shared_ptr<const TracedLayers> traced;  // instead of the others
  const LifetimePart* attention = nullptr;
  const LifetimePart* dense = nullptr;
  const LifetimePart* experts = nullptr;
  const LifetimePart* head = nullptr;
};
StageParts stage_parts(const Setup& setup, const LifetimeProgram& program);

int64_t head_elements(const StageParts& parts, const LayerSymbols& symbols);

// Elements on one rank of the stage: of matrices and vectors every data-parallel rank holds, and of experts.
struct StageElements {
  int64_t dense = 0, expert = 0;
  int64_t vocabulary = 0;  // of `dense`: embedding and head
};
StageElements stage_elements(const Setup& setup, const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage);
// One buffer for each distinct shape whose gradient TE leaves in one that stays.
std::vector<int64_t> dummy_gradient_bytes(const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage);

// The weights of a stage as separate allocations that add up to `bytes`, in the order they are made.
std::vector<int64_t> weight_sizes(const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage, int64_t bytes);

struct StageActivations {
  int64_t kept = 0;            // of all micro-batches in flight at the peak
  int64_t offloaded = 0;       // of those, on the host: all but two layers' with activation offload
  int64_t layer_peak = 0;      // most alive while a layer runs
  bool forward_peaks = false;  // it runs forward then (rows of experts are held by the layer's frame)
  int64_t loss_peak = 0;       // most alive while the head runs; 0 without a head
  int64_t evaluate_peak = 0;   // forward alone, nothing kept
  int64_t logits_bytes = 0;    // in loss_peak
};
StageActivations stage_activations(const Setup& setup, const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage);

}  // namespace distsetup
