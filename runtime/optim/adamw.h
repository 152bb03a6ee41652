// AdamW on a rank's flat shard: one fused call per decay class, gradients scaled by the clip factor in the same pass.
// Source: Loshchilov and Hutter, arXiv 1711.05101; arithmetic is libtorch's _fused_adamw_.
#pragma once
#include <memory>

#include "plan/layout.h"
#include "plan/plan.h"

namespace distsetup {

// What clipping multiplies gradients by: min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_; 1 when max_norm is 0.
// Throws std::domain_error when the norm is not finite: min(1, NaN) would be 1.
double clip_factor(double norm, double max_norm);

class AdamW {
 public:
  // Pointers to layout.shard_numel floats each, which stay valid; ranges: valid elements only (decay_ranges).
  // The pointers are memory of that device.
  AdamW(const TrainPlan& train, const std::vector<DecayRange>& ranges, float* master, float* gradient, float* exp_avg,
        float* exp_avg_sq, Accelerator accelerator = Accelerator::kCpu, int device_index = 0);
  ~AdamW();
  // `step` counts from 1 (bias correction). The gradient is overwritten with the clipped one.
  void step(int64_t step, double learning_rate, double clip);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distsetup
