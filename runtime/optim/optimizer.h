// An optimizer's step on a rank's flat shard. Which there are, and what they keep: plan/optimizer.h.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/layout_ranges.h"
#include "plan/plan.h"
#include "runtime/device/device.h"
#include "runtime/engine/ops.h"

namespace distsetup {

// What clipping multiplies gradients by: min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_; 1 when max_norm is 0.
// Throws std::domain_error when the norm is not finite: min(1, NaN) would be 1.
double clip_factor(double norm, double max_norm);

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // `step` counts from 1 (bias correction). Gradients are multiplied by `clip` and may be overwritten. Elements that no range has
  // keep their values, and their states stay zero.
  virtual void step(int64_t step, double learning_rate, double clip) = 0;
  // An instruction that the list has before the step for this optimizer's sake (plan/update_writer.h); with the step's numbers.
  virtual void prepare(const Instruction& instruction, const Call& call, int64_t step, double learning_rate, double clip);
};

// The memory of a rank: fp32 master and gradient, and a buffer of the optimizer by its name.
struct OptimizerMemory {
  float* master = nullptr;
  float* gradient = nullptr;
  std::function<void*(const std::string& buffer)> state;
  int64_t numel = 0;  // of the flat shard
};

// What Adafactor and Muon know of the parameters that a shard is of.
struct OptimizerPlace {
  const Layout* layout = nullptr;
  Coordinates at;
  Device* of_matrices = nullptr;  // what Muon multiplies matrices with; null: the optimizer's own device
};

// `device` and the layout must outlive it.
std::unique_ptr<Optimizer> make_optimizer(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory,
                                          Device& device, const OptimizerPlace& place = {});

}  // namespace distsetup
