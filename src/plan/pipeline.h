// A pipeline: which units each stage holds, and in which order it computes. Stage s of p holds the chunks s, p + s, 2p + s, ... of the
// model, each of them consecutive layers; most pipelines have one chunk per stage. The embedding belongs to the first chunk, the head
// to the last.
// Orders: 1F1B (Narayanan et al., arXiv 1806.03377) and interleaved 1F1B (arXiv 2104.04473), as torch.distributed.pipelining runs them
// (torch/distributed/pipelining/schedules.py: Schedule1F1B, ScheduleInterleaved1F1B).
#pragma once
#include <cstdint>
#include <vector>

#include "plan/mesh.h"

namespace distsetup {

// How many of the model's layers each chunk has. They are spread evenly; where the embedding and the head count as layers (their
// number then divides), the first and last chunk get one less; what is left over goes to the middle.
std::vector<int64_t> layers_per_chunk(int64_t num_layers, int64_t num_chunks);

// Units are numbered as in Layout: the embedding is 0, layer i is i + 1, the head is num_layers + 1.
struct UnitSpan {
  int first = 0, last = 0;  // both inclusive
  bool contains(int unit) const { return first <= unit && unit <= last; }
};
// The chunks of one stage, in the order of the model.
std::vector<UnitSpan> stage_chunks(int64_t num_layers, int stages, int chunks_per_stage, int stage);

struct PipelineAction {
  bool is_forward = true;
  int chunk = 0;  // of this stage
  int micro_batch = 0;
  bool operator==(const PipelineAction&) const = default;
};
// What a stage computes in a step, in order. Interleaved, micro_batches has to be a multiple of pipeline_rounds().
std::vector<PipelineAction> pipeline_order(int stages, int chunks_per_stage, int64_t micro_batches, int stage);
// Interleaved: micro-batches go through a stage's chunks in so many equal groups.
int64_t pipeline_rounds(int stages, int64_t micro_batches);

// The most micro-batches of each chunk that have run forward and not yet backward.
std::vector<int> most_in_flight(const std::vector<PipelineAction>& order, int num_chunks);

}  // namespace distsetup
