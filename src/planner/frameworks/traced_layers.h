// Blocks of an eager or compiled program (replay/tape.h) as the sums a pipeline stage needs, so that DeepSpeed under Transformers
// reads the same lists as FSDP does.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "planner/frameworks/lifetimes.h"
#include "planner/replay/tape.h"

namespace distsetup {

struct TracedBlock {
  replay::Trace kept, again;  // keeps all; runs again in backward
  PartBytes kept_bytes, again_bytes;
  std::vector<int64_t> weights;                       // elements, frozen and trained alike, adapters left out
  std::vector<int64_t> gradients;                     // elements by index in the program; 0: not trained
  int64_t adapter_elements = 0, linear_elements = 0;  // linear: matrices that adapters can be named after
};

struct TracedLayers {
  TracedBlock blocks[2];    // without, with experts; one the model does not have is empty
  replay::Trace head;       // with its loss
  int64_t input_bytes = 0;  // of a block's input, and of the gradient of its output
  PartBytes head_bytes;
  int64_t held_bytes = 0;                                // of the head, until the whole backward is over
  std::vector<int64_t> embedding_weights, head_weights;  // as those of a block
};

// nullptr when the program is none of the traced ones. A loss it does not have counts as the eager one.
std::unique_ptr<const TracedLayers> traced_layers(const Setup& setup);

}  // namespace distsetup
