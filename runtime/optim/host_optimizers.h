// Optimizers with loops of our own, on the CPU.
//   lion        Chen et al., arXiv 2302.06675, algorithm 2
//   adamw_8bit  bitsandbytes' AdamW8bit: moments in block_codes.h's codes, blocks of kScaleBlock elements of the flat shard. A
//   parameter
//               moves by the moments of this step before they are rounded.
#pragma once
#include <memory>

#include "runtime/optim/optimizer.h"

namespace distsetup {

std::unique_ptr<Optimizer> make_lion(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory);
std::unique_ptr<Optimizer> make_adamw_8bit(const TrainPlan& train, const std::vector<DecayRange>& ranges,
                                           const OptimizerMemory& memory);

}  // namespace distsetup
