#include "runtime/optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/check.h"
#include "runtime/optim/adafactor.h"
#include "runtime/optim/fused.h"
#include "runtime/optim/muon.h"
#include "runtime/optim/own_optimizers.h"

namespace distsetup {

double clip_factor(double norm, double max_norm) {
  if (!std::isfinite(norm)) throw std::domain_error(fmt::format("the gradient norm is {}", norm));
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

void Optimizer::prepare(const Instruction& instruction, const Call&, int64_t, double, double) {
  CHECK(false, "an optimizer that has nothing to do at {}", name(instruction.op));
}

std::unique_ptr<Optimizer> make_optimizer(const TrainPlan& train, const std::vector<DecayRange>& ranges, const OptimizerMemory& memory,
                                          Device& device, const OptimizerPlace& place) {
  if (train.optimizer == "adamw" && device.accelerator() == Accelerator::kCuda)
    return make_own_adamw(train, ranges, memory, device.kernels());
  if (train.optimizer == "adamw") return make_adamw(train, ranges, memory, device.accelerator(), device.index());
  if (train.optimizer == "sgd") return make_sgd(train, ranges, memory, device.accelerator(), device.index());
  if (train.optimizer == "lion") return make_lion(train, ranges, memory, device.kernels());
  if (train.optimizer == "adamw_8bit") return make_adamw_8bit(train, ranges, memory, device.kernels());
  if (train.optimizer == kAdafactor) return make_adafactor(train, memory, place, device);
  if (train.optimizer == kMuon) return make_muon(train, memory, place, device);
  CHECK(false, "the trainer has no optimizer '{}'", train.optimizer);  // validate() says so
  return nullptr;
}

}  // namespace distsetup
