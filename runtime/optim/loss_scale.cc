#include "runtime/optim/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace distsetup {

LossScaleState initial_loss_scale(const LossScalePlan& plan) {
  const double scale = plan.fixed > 0 ? static_cast<double>(plan.fixed) : std::ldexp(1.0, static_cast<int>(plan.initial_power));
  return {scale, 0, plan.hysteresis};
}

LossScaleState next_loss_scale(const LossScalePlan& plan, const LossScaleState& state, bool overflowed) {
  constexpr double kLargest = 0x1p126;  // a coefficient in fp32 is made of it
  LossScaleState next = state;
  if (plan.fixed > 0) return next;
  if (overflowed) {
    next.good_steps = 0;
    if (state.overflows_left > 1)
      --next.overflows_left;
    else
      next.scale = std::max(state.scale / 2, static_cast<double>(plan.minimum));
  } else if (++next.good_steps >= plan.window) {
    next = {std::min(2 * state.scale, kLargest), 0, plan.hysteresis};
  }
  return next;
}

bool is_smallest(const LossScalePlan& plan, const LossScaleState& state) {
  return plan.fixed == 0 && state.overflows_left <= 1 && state.scale <= static_cast<double>(plan.minimum);
}

}  // namespace distsetup
