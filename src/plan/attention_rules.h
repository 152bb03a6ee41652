// The rows of the kernel table (kernel_table.h) that attend: of one rank, and of ranks that share sequences.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "plan/kernel_table.h"

namespace distsetup {

const std::vector<KernelRule>& attention_rules();

// FLOPs of causal attention over `sequences` sequences, as an expression: 2 `times` forward, 5 backward.
std::string attention_work(const Op& op, std::string_view times, std::string_view sequences = "(T/S)");
// A rank's share of it, where cp ranks share sequences.
std::string shared_attention_work(const Op& op, std::string_view times);

}  // namespace distsetup
