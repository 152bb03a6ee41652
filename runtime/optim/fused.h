// Optimizers that libtorch has a fused kernel of, for CPU and GPU: one call per decay class, gradients scaled by the clip factor in
// the same pass.
//   adamw  Loshchilov and Hutter, arXiv 1711.05101; _fused_adamw_
//   sgd    torch.optim.SGD, weight decay added to the gradient; _fused_sgd_
#pragma once
#include <memory>

#include "plan/layout_ranges.h"
#include "runtime/optim/optimizer.h"

namespace distsetup {

std::unique_ptr<Optimizer> make_adamw(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory,
                                      Accelerator accelerator, int device_index);
// The same of some ranges, whose second moments lie elsewhere: those of range i from element second_begins[i] on.
std::unique_ptr<Optimizer> make_adamw_beside(const TrainPlan& train, const std::vector<DecayRange>& ranges,
                                             const std::vector<int64_t>& second_begins, const OptimizerMemory& memory,
                                             Accelerator accelerator, int device_index);
std::unique_ptr<Optimizer> make_sgd(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory,
                                    Accelerator accelerator, int device_index);

}  // namespace distsetup
