// Ops of latent attention (src/plan/latent_rules.h): sizes for every device, and the CPU's own.
#pragma once
#include <string>

#include "runtime/engine/ops.h"
#include "runtime/kernels/latent_heads.h"

namespace distsetup {

// Of a row of kv and one of ckv.
LatentHeads latent_heads(const OpContext& context, const Argument& kv, const Argument& ckv);

bool bind_latent_op(const std::string& kernel, Call& call);  // false: another kernel

}  // namespace distsetup
