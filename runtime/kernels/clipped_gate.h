// The gate of GPT-OSS's experts, for the kernels of every device: gate and up take turns in gu, and
// m = weight · (up + 1) · gate · sigmoid(alpha · gate), with the gate clipped to at most `limit` and up to ± limit.
#pragma once

namespace distsetup {

struct ClippedGate {
  float limit = 0, alpha = 0;
};

}  // namespace distsetup
