// What GPT-OSS has beside other mixtures of experts: sinks in attention, biases of experts, and a gate that is clipped. A sink is a
// score of the head's own in the softmax, without a value: attention's output and log-sum-exp take it in after the kernel, in place,
// and attention's backward, which reads both, needs no change for it. The biases of all experts are on each rank: those of the
// up-projection are added to rows of experts, those of the down-projection to tokens, with the weights of their choices.
#pragma once
#include <vector>

#include "plan/kernel_table.h"

namespace distsetup {

inline constexpr std::string_view kGroupedBias = "grouped_bias_add";

const std::vector<KernelRule>& sink_and_bias_rules();

}  // namespace distsetup
