// Blocks of an eager or compiled program (replay/tape.h) as the sums a pipeline stage needs, so that DeepSpeed under Transformers
// reads the same lists as FSDP does.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "planner/frameworks/lifetimes.h"
#include "planner/replay/tape.h"

namespace distsetup {

struct TracedLayers {
  replay::Trace kept, again, head;  // a block that keeps all, one that runs again in backward, the head with its loss
  int64_t input_bytes = 0;          // of a block's input, and of the gradient of its output
  PartBytes kept_bytes, again_bytes, head_bytes;
  int64_t held_bytes = 0;                                               // of the head, until the whole backward is over
  std::vector<int64_t> embedding_weights, block_weights, head_weights;  // elements, frozen and trained alike, adapters left out
  std::vector<int64_t> block_gradients;                                 // elements by index in the program; 0: not trained
};

// nullptr when the program is none of the traced ones. A loss it does not have counts as the eager one.
std::unique_ptr<const TracedLayers> traced_layers(const Setup& setup);

}  // namespace distsetup
