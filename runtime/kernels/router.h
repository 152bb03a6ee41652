// How a router chooses experts, for the kernels of every device.
#pragma once
#include <cstdint>

namespace distsetup {

// How logits become weights. kSoftmax: over all experts; kSigmoid: each by itself, and a bias takes part in the choice alone (DeepSeek
// V3, arXiv 2412.19437).
enum class RouterScore { kSoftmax, kSigmoid };

struct Router {
  RouterScore score = RouterScore::kSoftmax;
  int64_t num_experts = 0, k = 0;
  // Experts in so many groups, of which a token has the best: by the largest score in it (kSoftmax), or the sum of the two largest.
  int64_t groups = 1, groups_chosen = 1;
  bool normalized = false;  // weights are divided by their sum
  float scaling = 1;        // and multiplied by this
};

}  // namespace distsetup
