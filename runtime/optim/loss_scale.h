// The loss scale of fp16, whose gradients would vanish below 2^-24 and overflow above 65,504: the loss is multiplied by it, and what
// the optimizer sees of the gradient is divided by it. A step whose gradient is not finite is left out. A scale that is not fixed is
// halved after `hysteresis` such steps and doubled after `window` good ones in a row: as DeepSpeed's DynamicLossScaler, and with
// hysteresis 1 as torch.amp.GradScaler with growth factor 2 and backoff factor 1/2. All ranks see the same norm, so all have the same
// scale.
#pragma once
#include "plan/plan.h"
#include "weights/manifest.h"

namespace distsetup {

LossScaleState initial_loss_scale(const LossScalePlan& plan);
// After a step whose gradient overflowed, or did not.
LossScaleState next_loss_scale(const LossScalePlan& plan, const LossScaleState& state, bool overflowed);
// Would an overflow leave a scale that is not fixed where it is, because it is the smallest?
bool is_smallest(const LossScalePlan& plan, const LossScaleState& state);

}  // namespace distsetup
