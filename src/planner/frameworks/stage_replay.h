// A pipeline stage's steps through the model of PyTorch's caching allocator: what the segments make of the lifetimes. Two optimizer
// steps of 1F1B with as many micro-batches as fill the pipeline and two more; every tensor of a part is one allocation.
#pragma once
#include <cstdint>
#include <vector>

#include "planner/frameworks/memory.h"
#include "planner/frameworks/stages.h"

namespace distsetup {

struct StageBuffers {
  std::vector<int64_t> initial;        // freed once the first two of from_start are there: weights before they move into a flat buffer
  std::vector<int64_t> from_start;     // parameters, gradient buffers, master, workspaces
  std::vector<int64_t> at_start;       // beside all of from_start, and freed before the first forward
  std::vector<int64_t> from_backward;  // made in the first backward and kept
  std::vector<int64_t> in_backward;    // for the length of each micro-batch's backward
  std::vector<int64_t> from_optimizer;  // moments: made in the first step and kept
  int64_t norm = 0;                     // of every step, before all others
  int64_t flat_gradient = 0;            // of every step, until the first of in_optimizer is made of it
  std::vector<int64_t> in_optimizer;    // temporaries of every step
  bool reduces_at_once = false;         // gradients of weights are made and given back layer by layer
  int64_t capacity_bytes = 0;           // what the driver can hand out
  // Beside a gradient on its way to the host: after the head's backward, and after a layer's.
  int64_t leaving_head = 0, leaving_layer = 0;
};

struct StageReplay {
  int64_t allocated_bytes = 0, reserved_bytes = 0;  // peaks
  bool ran_out = false;
};
StageReplay replay_stage(const Setup& setup, const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage,
                         const StageBuffers& buffers);

// Fills reserved and device bytes and ran_out of `out`, whose allocated bytes are known: the fullest stage's.
void replay_into(MemoryEstimate& out, const Setup& setup, const StageParts& parts, const LayerSymbols& symbols,
                 const StageLayers& stage, StageBuffers buffers);  // capacity_bytes is filled in here

}  // namespace distsetup
