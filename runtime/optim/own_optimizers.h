// Optimizers with kernels of our own (Kernels::adamw, lion and adamw_8bit); what these do on the CPU.
//   adamw       Loshchilov and Hutter, arXiv 1711.05101; on CPUs libtorch's (fused.h)
//   lion        Chen et al., arXiv 2302.06675, algorithm 2
//   adamw_8bit  bitsandbytes' AdamW8bit, in blocks of kScaleBlock elements of the flat shard
#pragma once
#include <memory>

#include "plan/layout_ranges.h"
#include "runtime/kernels/updates.h"
#include "runtime/optim/optimizer.h"

namespace distsetup {

std::unique_ptr<Optimizer> make_own_adamw(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory,
                                          const Kernels& kernels);
std::unique_ptr<Optimizer> make_lion(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory,
                                     const Kernels& kernels);
std::unique_ptr<Optimizer> make_adamw_8bit(const TrainPlan& train, const std::vector<DecayRange>& ranges,
                                           const OptimizerMemory& memory, const Kernels& kernels);

void update_adamw_on_host(const AdamWUpdate& update);
void update_lion_on_host(const LionUpdate& update);
void update_adamw_8bit_on_host(const AdamW8bitUpdate& update);

}  // namespace distsetup
